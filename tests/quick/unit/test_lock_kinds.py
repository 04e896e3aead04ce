"""The records of the kinds of lock: what derives from them has every kind."""

import re
from typing import Final

from tests.support.contract.locks.kinds import uses
from tests.support.lock_kinds import LOCK_KINDS, page
from tests.support.paths import ROOT

NAMED: Final = re.compile(r"^  name = '(\w+)',$", re.MULTILINE)
NAMES = {kind.name for kind in LOCK_KINDS}


def test_every_kind_that_an_operator_may_see_has_one_record() -> None:
    parts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "segmented" / "protocol").glob("*/kind.lua"))]
    assert sorted(name for part in parts for name in NAMED.findall(part)) == sorted(kind.name for kind in LOCK_KINDS)
    assert len(LOCK_KINDS) == len(NAMES)


def test_the_reference_page_is_what_the_records_say() -> None:
    written = (ROOT / "docs" / "reference" / "lock-kinds.md").read_text(encoding="utf-8")
    assert written == page(), "make docs"


def test_metrics_count_the_leases_of_each_kind_by_its_name() -> None:
    assert [use.acquire("a", "holder").lease_kind for use in uses()] == [use.kind for use in uses()]
    assert {use.kind for use in uses()} == NAMES - {"get_set"}, "whose lock is no operation"

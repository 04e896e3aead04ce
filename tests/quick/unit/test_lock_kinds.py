"""The records of the kinds of lock: what derives from them has every kind."""

import re
from typing import Final

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

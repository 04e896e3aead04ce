"""The records of the kinds of lock: what derives from them has every kind."""

from __future__ import annotations

import re
from typing import Final

import pytest

from segmented import locks
from segmented.cli.lock_kinds import page
from segmented.cli.reference import public_names
from segmented.clock import ManualClock
from segmented.errors import WrongKind
from segmented.protocol import AcquireFair, AcquireLock
from segmented.protocol.kinds import LOCK_KINDS
from segmented.protocol.wire import load_script
from segmented.stores.memory import MemoryModel
from tests.support.contract.locks.kinds import LONG_MS, handles
from tests.support.contract.locks.operator_kinds import KINDS
from tests.support.paths import ROOT

NAMED: Final = re.compile(r"^  name = '(\w+)',$", re.MULTILINE)
TOKENS: Final = re.compile(r"^  name = '(\w+)',$\n(?:^  .*\n)*?^  has_token = (\w+),$", re.MULTILINE)
NAMES = {kind.name for kind in LOCK_KINDS}


def test_every_kind_that_an_operator_may_see_has_one_record() -> None:
    parts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "segmented" / "protocol").glob("*/kind.lua"))]
    assert sorted(name for part in parts for name in NAMED.findall(part)) == sorted(kind.name for kind in LOCK_KINDS)
    assert len(LOCK_KINDS) == len(NAMES)


def test_the_record_knows_whether_the_servers_keep_a_token() -> None:
    scripts = load_script("show_lock").text
    kept = {name: has_token == "true" for name, has_token in TOKENS.findall(scripts)}
    assert kept == {kind.name: kind.has_token for kind in LOCK_KINDS}


def test_the_record_names_the_handles_of_a_kind() -> None:
    named = {kind.handle for kind in LOCK_KINDS}
    assert {*named, *(f"Async{name}" for name in named)} <= set(public_names(locks))
    assert {kind.title.partition(" ")[0] for kind in handles()} == named | {"MultiLock"}


def test_every_record_is_in_the_tests_of_all_kinds() -> None:
    assert {kind.kind for kind in KINDS} == NAMES - {"get_set"}  # a plain value without an end has tests of its own


def test_the_reference_page_is_what_the_records_say() -> None:
    written = (ROOT / "docs" / "reference" / "lock-kinds.md").read_text(encoding="utf-8")
    assert written == page(), "make docs"


def test_a_name_that_one_kind_holds_is_refused_to_another() -> None:
    model = MemoryModel(ManualClock())
    model.execute(AcquireLock("door", "me", LONG_MS))
    fair = next(kind for kind in KINDS if kind.kind == "fair").acquire("door", "you")
    assert isinstance(fair, AcquireFair)
    with pytest.raises(WrongKind, match="another kind of lock"):
        model.execute(fair)

"""The records of the kinds of lock: what derives from them has every kind."""

from __future__ import annotations

from typing import get_args

import pytest

from segmented.clock import ManualClock
from segmented.errors import WrongKind
from segmented.models.locks import LockKind
from segmented.protocol import AcquireFair, AcquireLock
from segmented.protocol.kinds import lock_kinds
from segmented.protocol.model import MemoryModel
from tests.contract.locks.operator_kinds import KINDS, LONG_MS

NAMES = {kind.name for kind in lock_kinds()}


def test_every_kind_that_an_operator_may_see_has_one_record() -> None:
    assert len(lock_kinds()) == len(NAMES)
    assert set(get_args(LockKind)) == NAMES


def test_every_record_is_in_the_tests_of_all_kinds() -> None:
    assert {kind.kind for kind in KINDS} == NAMES - {"get_set"}  # a plain value without an end has tests of its own


def test_each_kind_takes_names_by_operations_that_no_other_kind_has() -> None:
    taken = [operation for kind in lock_kinds() for operation in kind.takes]
    assert len(taken) == len(set(taken)) >= len(NAMES)


def test_a_name_that_one_kind_holds_is_refused_to_another() -> None:
    model = MemoryModel(ManualClock())
    model.execute(AcquireLock("door", "me", LONG_MS))
    fair = next(kind for kind in KINDS if kind.kind == "fair").acquire("door", "you")
    assert isinstance(fair, AcquireFair)
    with pytest.raises(WrongKind, match="the name 'door' belongs to another kind of lock"):
        model.execute(fair)

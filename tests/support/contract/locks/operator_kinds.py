"""The questions of an operator, and every kind of lock, for the tests of both."""

from typing import Final

import pytest

from segmented.locks.operator import revoke_plan, show_plan
from segmented.models.locks import LockState, Revoked
from tests.fixtures.stores import Side
from tests.support.contract.locks.kinds import USES

HOLDER: Final = "0123456789abcdef"
OTHER: Final = "fedcba9876543210"

KINDS: Final = USES
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def shown(side: Side, name: str) -> LockState | None:
    return side.run(show_plan(name))


def revoked(side: Side, name: str) -> Revoked | None:
    return side.run(revoke_plan(name))


def held(side: Side, name: str) -> LockState:
    state = shown(side, name)
    assert state is not None
    return state

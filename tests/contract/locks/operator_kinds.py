"""Every kind of lock by its operations, and what an operator asks, for the tests of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import protocol as op
from segmented.locks.fair import TIMES
from segmented.locks.operator import revoke_plan, show_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.locks import LockState, Revoked
    from tests.fixtures.stores import Side

LONG_MS: Final = 60_000
LONG: Final = 60.0
SOON: Final = 5.0
PATIENCE: Final = 15.0
HOLDER: Final = "0123456789abcdef"
OTHER: Final = "fedcba9876543210"


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind is acquired, renewed and released by its operations."""

    kind: str
    mode: str
    acquire: Callable[[str, str], op.Operation[Any]]
    renew: Callable[[str, str], op.Operation[Any]]
    release: Callable[[str, str], op.Operation[Any]]
    has_token: bool = True

    def __str__(self) -> str:
        return f"{self.kind}-{self.mode}"


KINDS: Final = [
    Kind(
        "lock",
        "exclusive",
        lambda name, me: op.AcquireLock(name, me, LONG_MS),
        lambda name, me: op.RenewLock(name, me, LONG_MS),
        op.ReleaseLock,
    ),
    Kind(
        "reentrant",
        "exclusive",
        lambda name, me: op.AcquireReentrant(name, f"owner {me}", me, LONG_MS),
        lambda name, me: op.RenewReentrant(name, f"owner {me}", me, LONG_MS),
        lambda name, me: op.ReleaseReentrant(name, f"owner {me}", me),
    ),
    Kind(
        "fair",
        "exclusive",
        lambda name, me: op.AcquireFair(name, me, "process", LONG_MS, TIMES),
        lambda name, me: op.RenewFair(name, me, LONG_MS),
        lambda name, me: op.ReleaseFair(name, me, TIMES),
    ),
    Kind(
        "read_write",
        "read",
        lambda name, me: op.AcquireRead(name, me, LONG_MS),
        lambda name, me: op.RenewReadWrite(name, me, LONG_MS),
        op.ReleaseReadWrite,
    ),
    Kind(
        "read_write",
        "write",
        lambda name, me: op.AcquireWrite(name, me, LONG_MS),
        lambda name, me: op.RenewReadWrite(name, me, LONG_MS),
        op.ReleaseReadWrite,
    ),
    Kind(
        "semaphore",
        "permit",
        lambda name, me: op.AcquirePermit(name, me, LONG_MS, 1),
        lambda name, me: op.RenewPermit(name, me, LONG_MS),
        op.ReleasePermit,
    ),
    Kind(
        "quorum",
        "exclusive",
        lambda name, me: op.AcquireVote(name, me, LONG_MS),
        lambda name, me: op.RenewVote(name, me, LONG_MS),
        op.ReleaseVote,
        has_token=False,
    ),
]


each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def shown(side: Side, name: str, *, holders_max: int = 100) -> LockState | None:
    return side.run(show_plan(name, holders_max))


def revoked(side: Side, name: str) -> Revoked | None:
    return side.run(revoke_plan(name))


def held(side: Side, name: str) -> LockState:
    state = shown(side, name)
    assert state is not None
    return state

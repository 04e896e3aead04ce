"""Operations for an operator, on locks of every kind: look at one, end it, find the names that are taken."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models.locks import LockState, NamesPage, Revoked
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class ShowLock(Operation[LockState | None]):
    """Tell who holds the lock, of whatever kind; None when it is free. Names at most `holders_max` holders."""

    name: str
    holders_max: int


@dataclass(frozen=True, slots=True)
class RevokeLock(Operation[Revoked | None]):
    """End every lease on the name, and a lock-delay, and wake who waits; None when it is free.

    The holders are told at their next renewal or release that they have lost it. A repeat with the same `revoke_id`
    is told the same and ends nothing that began since.
    """

    name: str
    revoke_id: str


@dataclass(frozen=True, slots=True)
class ListLocks(Operation[NamesPage]):
    """Name some locks that are held and match, and the next cursor (0 at the end); one may come twice.

    On a cluster the master that serves `slot` is asked.
    """

    match: str
    cursor: int = 0
    slot: int | None = None

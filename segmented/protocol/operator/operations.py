"""Operations for an operator, on locks of every kind: show one, revoke it, list the held names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from segmented.models.locks import LockState, NamesPage, Revoked
from segmented.protocol.base import Operation

Place = Literal["lock", "compat", "segment", "key"]


@dataclass(frozen=True, slots=True)
class ShowLock(Operation[LockState | None]):
    """Return the state of a lock of any kind, with at most `holders_max` holders; None if it is free.

    With `is_key`, the name is the key itself: a lock of `segmented.compat`, a pool's segment, or another
    library's lock.
    """

    name: str
    holders_max: int
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class RevokeLock(Operation[Revoked | None]):
    """End every lease on the name and any lock-delay, and wake the waiters; None if it is free.

    The holders get "lost" from their next renewal or release. A repeat with the same `revoke_id` gets the same answer
    and leaves newer leases alone. With `is_key`, it is a lock of `segmented.compat` or redis-py; others are refused.
    """

    name: str
    revoke_id: str
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class ListLocks(Operation[NamesPage]):
    """Return some held locks that match, and the next cursor (0 at the end); a name may appear twice.

    On a cluster, the master that serves `slot` answers. `place` is where to look: a page of `lock` has names of locks,
    of `compat` names that segmented.compat has used, of `segment` keys of held segments, of `key` any keys.
    """

    match: str
    cursor: int = 0
    slot: int | None = None
    place: Place = "lock"

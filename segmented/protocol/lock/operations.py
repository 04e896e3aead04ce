"""Operations on named locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segmented.models import Acquired, Held, Lost, Released, Renewed, Unreplicated
from segmented.protocol.base import Operation, Release

TURN: Final = "turn:"
"""Begins a message that the lock is left to the process of that name; it should try now."""
FIRST: Final = "first:"
"""Begins a message that the process of that name is the first of the line now, because the one before took the lock for
so many milliseconds; it should try at the next release."""
TAKEN: Final = "taken:"
"""A message that what was free is taken: a process behind others need not try."""
ALL: Final = "*"
"""The process of a turn that every process has: the line was forgotten because its first did not come."""
NEWCOMER: Final = "*"
"""Begins the party of a caller that has not waited, and would; alone, the party of one that keeps no place yet."""
NEWCOMERS_MAX: Final = 2
"""Turns of callers that have not waited, in a row, while another process waits."""
WAITERS_MAX: Final = 15
"""As above, if the last of them is a waiter of another process."""
PASSED_MS: Final = 50
"""Milliseconds after which a free lock is left to the first of the line, however few turns others had."""
LEFT_MS: Final = 40
"""Milliseconds for which it is left to it; then all processes lose their places, and those that wait ask again."""
LINE_TTL_MS: Final = 30_000
"""Milliseconds after which a line is forgotten to which no process comes; a waiting one comes within a second."""


@dataclass(frozen=True, slots=True)
class AcquireLock(Operation[Acquired | Held | Unreplicated]):
    """Take the lock for `ttl_ms` if it is free. A repeat by the same holder id renews it and keeps its token.

    The key lives `delay_ms` longer than the lease. With `replicas`, that many must acknowledge within `within_ms`. With
    `is_key`, here and in the other operations, the name is the key itself, which redis-py's own lock may use too.

    Without a `party` an attempt takes a free lock also if others wait. With a `party`, the random name of a process
    that waits, a failed attempt keeps that process's place in the line of all processes. A free lock is left to the
    first of the line, for `LEFT_MS`, when others have had `NEWCOMERS_MAX` turns (`WAITERS_MAX` if they waited, too), or
    all turns for `PASSED_MS`.
    """

    name: str
    holder_id: str
    ttl_ms: int
    delay_ms: int = 0
    replicas: int = 0
    within_ms: int = 0
    is_key: bool = False
    party: str = ""


@dataclass(frozen=True, slots=True)
class LeaveLine(Release[bool]):
    """Take the process `party`, which waits no more, out of the line of a lock of any kind that has one.

    If it was the first, the next process is notified: to try now or, while another holds the lock, that it is the
    first. Takes nothing, so an undoing need not come after it. Returns whether the process had a place.
    """

    name: str
    party: str
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class RenewLock(Operation[Renewed | Lost]):
    """Extend the lease to `ttl_ms` from now, if it is still the holder's. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int
    delay_ms: int = 0
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class AdoptLock(Operation[Acquired | Lost]):
    """Find the lease of `holder_id`: returns its token and remaining time. Changes nothing.

    A key without expiry, which only another program can write, counts as one of `ttl_ms`.
    """

    name: str
    holder_id: str
    ttl_ms: int
    delay_ms: int = 0
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class RenameHolder(Operation[bool]):
    """Give the lease of `holder_id` to `new_holder_id`, with its token and its end. False if it belongs to neither.

    Afterwards, operations with the old holder id get Lost.
    """

    name: str
    holder_id: str
    new_holder_id: str
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseLock(Release[Released | Lost]):
    """Delete the lock if it is the holder's, and wake a waiter. A repeat gets Released until another releases it.

    A `quiet` release wakes no waiter, because the caller sends the attempt of one right behind it.
    """

    name: str
    holder_id: str
    delay_ms: int = 0
    is_key: bool = False
    quiet: bool = False

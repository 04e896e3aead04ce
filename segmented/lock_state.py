"""What an operator is told about a lock of any kind. All of it is frozen, and none of it lets anybody release it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

LockKind = Literal["lock", "reentrant", "fair", "read_write", "semaphore", "quorum", "get_set"]
HolderMode = Literal["exclusive", "read", "write", "permit"]

HOLDER_ID_SHOWN: Final = 8
"""Characters of a holder id that are told: the whole of it proves ownership."""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """One holder; of a reentrant lock, the owner with all its entries."""

    holder_id_start: str
    """The first characters of the holder id; empty for an owner, whose name is in `owner`."""
    mode: HolderMode
    remaining_ms: int | None
    """Milliseconds until its lease ends by itself; None when it never does."""
    owner: str | None = None
    count: int = 1
    """How often the owner has entered."""


@dataclass(frozen=True, slots=True)
class LockState:
    """A lock that is not free, in one step of its server."""

    name: str
    kind: LockKind
    holders: tuple[LockHolder, ...]
    """The one whose lease ends first comes first. None while `is_delayed`; some of them where there are very many."""
    holder_count: int
    free_in_ms: int | None
    """Milliseconds until the name is free without any release or renewal; None when that is never."""
    fencing_token: int | None
    """The one given out last; None for kinds without one, and for a key that another program wrote."""
    is_delayed: bool = False
    """True when the last lease lapsed without a release, and its lock-delay runs."""
    permits: int | None = None
    """How many may hold a semaphore at a time."""
    waiters: int | None = None
    """In the queue of a fair lock, or writers that wait; None for kinds that do not count those who wait."""
    listeners: int | None = None
    """Subscriptions of processes that wait, or waited a moment ago; None where the server cannot tell (a cluster)."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Every lease on the name has ended."""

    kind: LockKind
    fencing_token: int | None
    """The last one that was given out: whoever comes next has a higher one."""


@dataclass(frozen=True, slots=True)
class NamesPage:
    """Some names, and where to go on; 0 when that was the last page."""

    names: tuple[str, ...]
    cursor: int

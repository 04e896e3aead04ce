"""Answers to the operations on locks and cached values, and what an operator is told about a lock of any kind.

What an operator is told is frozen, and none of it lets anybody release the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

LockKind = Literal["lock", "reentrant", "fair", "read_write", "semaphore", "quorum", "get_set"]
HolderMode = Literal["exclusive", "read", "write", "permit"]
HOLDER_ID_SHOWN: Final = 8
"""Characters of a holder id that are told: the whole of it proves ownership."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lock is ours for `ttl_ms`, by the server's clock, counted from the request."""

    fencing_token: int
    ttl_ms: int
    replay: bool
    """True when this holder id had the lock already: a repeat after a lost reply."""
    next_in_ms: int | None = None
    """Of a lock that several may hold: milliseconds until one more may get in, 0 at once. None: only we hold it."""

    @property
    def free_in_ms(self) -> int:
        """Milliseconds until the lock may be free again, or for one more, without any release."""
        return self.ttl_ms if self.next_in_ms is None else self.next_in_ms


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else holds the lock, for `free_in_ms` at most; None when its key never lapses."""

    free_in_ms: int | None
    is_delayed: bool = False
    """True when nobody holds it: the last lease lapsed without a release, and its lock-delay runs."""


@dataclass(frozen=True, slots=True)
class HeldBy(Held):
    """`Held`, and by which attempt: its mark is the same on all servers that voted for it."""

    holder_mark: str = ""


@dataclass(frozen=True, slots=True)
class Unreplicated:
    """The lock was taken, but fewer replicas than wanted acknowledged it in time. To be released by the caller."""

    wanted: int
    acknowledged: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease lives for `ttl_ms` from the request."""

    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Released:
    """The lease was ours and is gone."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is not ours: it lapsed, was revoked, or a successor holds the lock. Nothing changed."""

    is_unsure: bool = False
    """True when an earlier request, whose reply was lost, may have released it."""


@dataclass(frozen=True, slots=True)
class Reestablished(Lost):
    """`Lost` on one server of a quorum, where nobody else held it: it was taken again, as was asked."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Which server answers: two with an id in common are not independent of each other."""

    run_id: str
    replication_id: str = ""
    """The same for a primary and its replicas."""
    node_ids: frozenset[str] = frozenset()
    """Every node of its cluster; empty without one."""


# --- cached values ---

CachedKind = Literal["text", "bytes", "none", "error"]


@dataclass(frozen=True, slots=True)
class Cached:
    """What is kept: a value as `text`, or as `bytes` in base64; that there is `none`; or the `error` of its loader."""

    kind: CachedKind
    body: str


@dataclass(frozen=True, slots=True)
class Uncached:
    """Nothing is kept under the name."""


@dataclass(frozen=True, slots=True)
class MayLoad:
    """The lock is ours, to make the value; `old` is what is kept until then, if it is still good."""

    acquired: Acquired
    old: Cached | None

    @property
    def free_in_ms(self) -> int:
        """Milliseconds until the lock may be free again without any release."""
        return self.acquired.ttl_ms


@dataclass(frozen=True, slots=True)
class Written:
    """The value is kept."""


@dataclass(frozen=True, slots=True)
class Outpaced:
    """Nothing was kept: a newer one was written, or the value was forgotten, after its loader took the lock."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Nothing is kept any more; `was_kept` tells whether anything was."""

    was_kept: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a fencing token is good, and the newest one that is known; None when there is none."""

    newest_token: int | None
    is_good: bool


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

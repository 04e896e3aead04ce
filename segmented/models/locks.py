"""Answers to the operations on locks and cached values, and the state of a lock as shown to operators.

The operators' values are frozen, and none of them makes it possible to release the lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

HolderMode = Literal["exclusive", "read", "write", "permit"]
HOLDER_ID_SHOWN: Final = 8
"""Number of characters of a holder id that are shown: the full id proves ownership."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lock is ours for `ttl_ms`, by the server's clock, counted from the request."""

    fencing_token: int
    ttl_ms: int
    replay: bool
    """True if this holder id already had the lock: a repeat after a lost reply."""
    next_in_ms: int | None = None
    """For a lock with several holders: milliseconds until one more can acquire it, 0 at once. None: only we hold it."""

    @property
    def free_in_ms(self) -> int:
        """Milliseconds until the lock may be free, or have room for one more holder, without any release."""
        return self.ttl_ms if self.next_in_ms is None else self.next_in_ms


@dataclass(frozen=True, slots=True)
class Held:
    """Another holder has the lock, for up to `free_in_ms`; None if its key never expires."""

    free_in_ms: int | None
    is_delayed: bool = False
    """True if there is no holder: the last lease expired without a release, and its lock-delay is running."""
    ahead: int = 0
    """How many other processes are before the caller's in the line of those that wait; 0 if it has no place there."""


@dataclass(frozen=True, slots=True)
class HeldBy(Held):
    """`Held`, and the mark of the attempt that holds it, which is the same on all servers that voted for it."""

    holder_mark: str = ""


@dataclass(frozen=True, slots=True)
class Unreplicated:
    """The lock was taken, but too few replicas acknowledged it in time. The caller must release it."""

    wanted: int
    acknowledged: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease lives for `ttl_ms` from the request."""

    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Released:
    """The lease was ours and has ended."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is not ours: it expired, was revoked, or a successor holds the lock. Nothing changed."""

    is_unsure: bool = False
    """True if an earlier request, whose reply was lost, may have released it."""
    is_forgotten: bool = field(default=False, compare=False)
    """True if the store has no trace of the name left: it lost its data, or the name was idle for a day."""
    revoked_token: int | None = field(default=None, compare=False)
    """Fencing token of the last lease of the name that was revoked, if the store says so."""


@dataclass(frozen=True, slots=True)
class Reestablished(Lost):
    """`Lost` on one server of a quorum, but free there: it was taken again, as requested."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The identity of a server: two servers with an id in common are not independent."""

    run_id: str
    replication_id: str = ""
    """The same for a primary and its replicas."""
    node_ids: frozenset[str] = frozenset()
    """All nodes of its cluster; empty without one."""


# --- cached values ---

CachedKind = Literal["text", "bytes", "none", "error"]


@dataclass(frozen=True, slots=True)
class Cached:
    """A cached value: as `text`, as `bytes` in base64, `none` for no value, or the `error` of its loader."""

    kind: CachedKind
    body: str


@dataclass(frozen=True, slots=True)
class Uncached:
    """Nothing is kept under the name."""


@dataclass(frozen=True, slots=True)
class MayLoad:
    """The lock is ours, to load the value; `old` is the cached value meanwhile, if it is still good."""

    acquired: Acquired
    old: Cached | None

    @property
    def free_in_ms(self) -> int:
        """Milliseconds until the lock may be free without any release."""
        return self.acquired.ttl_ms


@dataclass(frozen=True, slots=True)
class Written:
    """The value is stored."""


@dataclass(frozen=True, slots=True)
class Outpaced:
    """Nothing was stored: after the loader took the lock, a newer value was written or the value was deleted."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The value is deleted; `was_kept` says whether there was one."""

    was_kept: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a fencing token is still valid, and the newest known one; None if there is none."""

    newest_token: int | None
    is_good: bool


@dataclass(frozen=True, slots=True)
class LockHolder:
    """One holder; for a reentrant lock, the owner with all its entries."""

    holder_id_start: str
    """The first characters of the holder id; empty for an owner, whose name is in `owner`."""
    mode: HolderMode
    remaining_ms: int | None
    """Milliseconds until its lease expires; None if it never does."""
    owner: str | None = None
    count: int = 1
    """How often the owner has entered."""
    process: str | None = None
    """Host and process id of the program that acquired it, `host:pid`; None if its id does not say so."""


@dataclass(frozen=True, slots=True)
class LockState:
    """A lock that is not free, read in one step."""

    name: str
    kind: str
    """The name of its kind: one of `segmented lock show`, `segment`, `compat`, or another library's name."""
    holders: tuple[LockHolder, ...]
    """Sorted by the end of their leases. Empty while `is_delayed`; incomplete if there are very many."""
    holder_count: int
    free_in_ms: int | None
    """Milliseconds until the name is free without any release or renewal; None if never."""
    fencing_token: int | None
    """The last one issued; None for kinds without one, and for a key written by another program."""
    is_delayed: bool = False
    """True if the last lease expired without a release, and its lock-delay is running."""
    held_ms: int | None = None
    """Milliseconds since its only holder acquired it; None if several share it, or its kind has no fencing token."""
    permits: int | None = None
    """Maximum number of concurrent holders of a semaphore."""
    waiters: int | None = None
    """Waiters in a fair lock's queue, or waiting writers; None for kinds that do not count waiters."""
    listeners: int | None = None
    """Subscriptions of processes that wait, or waited a moment ago; None if the server cannot count them (a cluster).
    """


@dataclass(frozen=True, slots=True)
class Revoked:
    """Every lease on the name has ended."""

    kind: str
    fencing_token: int | None
    """The last one issued: the next holder gets a higher one."""


@dataclass(frozen=True, slots=True)
class NamesPage:
    """Some names, and the cursor for the next page; 0 at the end."""

    names: tuple[str, ...]
    cursor: int

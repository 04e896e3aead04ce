"""Answers to the operations on locks and cached values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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

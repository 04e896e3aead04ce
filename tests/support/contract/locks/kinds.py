"""Each kind of lock, described for the tests and for the page of all kinds, which `make docs` writes.

`LOCK_KINDS` has its record; `USES` says how it is held by its operations, for the tests of operators and damaged keys;
`HANDLES`, how its handles are made and what they offer, for the conformance suite and the tests of names and sentences.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from segmented import protocol as op
from segmented.locks import (
    AsyncGetSetLock,
    AsyncLock,
    AsyncMultiLock,
    AsyncQuorumLock,
    AsyncReadWriteLock,
    AsyncReentrantLock,
    AsyncSemaphore,
    GetSetLock,
    Lock,
    MultiLock,
    QuorumLock,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    task_owner,
    thread_owner,
)
from segmented.locks.fair import TIMES, AsyncFairLock, FairLock
from segmented.locks.lock import LockClaim
from segmented.models.locks import HolderMode
from segmented.protocol import Operation


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of lock."""

    name: str
    """The kind's name in `segmented lock show` and in the scripts."""
    handle: str
    """The class in `segmented.locks`; the class for asyncio has `Async` before its name."""
    holders: str
    """The holders that it admits, for the page of all kinds."""
    has_token: bool = True
    """Whether a lease has a fencing token."""
    counts_waiters: bool = False
    """Whether `segmented lock show` knows how many wait."""
    folder: str = ""
    """The folder of its operations and scripts, if it is not named as the kind."""


LOCK_KINDS: Final = (
    Kind("fair", "FairLock", "one at a time, first come, first served", counts_waiters=True),
    Kind(
        "get_set",
        "GetSetLock",
        "one at a time, if all clocks agree: the historical algorithm, for study",
        has_token=False,
    ),
    Kind("lock", "Lock", "one at a time"),
    Kind(
        "quorum",
        "QuorumLock",
        "one at a time, by the votes of a majority of independent servers",
        folder="vote",
        has_token=False,
    ),
    Kind("read_write", "ReadWriteLock", "many readers, or one writer", counts_waiters=True),
    Kind("reentrant", "ReentrantLock", "one owner at a time, which may acquire it again"),
    Kind("semaphore", "Semaphore", "up to N at a time"),
)
"""All kinds, by name."""

Make = Callable[..., Any]
"""Makes a handle of a store, a name and options."""
Steps = Callable[[Any], Sequence[Operation[Any]]]
"""Says by which operations something is done to a lease behind its holder's back."""
Step = Callable[[str, str], Operation[Any]]
"""Creates an operation from a name and a holder id."""

EVERY_LEASE: Final = frozenset({"ttl", "with", "renewal", "background", "telling", "listening"})
"""Features that nearly all kinds get from the shell they share."""
LAPSE_MS: Final = 1
LONG_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Use:
    """How one kind is acquired, renewed and released by its operations."""

    kind: str
    mode: HolderMode
    acquire: Step
    renew: Step
    release: Step
    names_owner: bool = False
    """Whether an operator sees its owner, and no holder id."""

    def __str__(self) -> str:
        return f"{self.kind}-{self.mode}"

    @property
    def record(self) -> Kind:
        """The record of the kind."""
        return next(kind for kind in LOCK_KINDS if kind.name == self.kind)


def _lapsing(hold: Any) -> Sequence[Operation[Any]]:  # noqa: ANN401  # the lease of any kind
    return [hold.claim.renewing(LAPSE_MS)]


def _ending(hold: Any) -> Sequence[Operation[Any]]:  # noqa: ANN401  # as above
    return [hold.claim.releasing()]


def _token(hold: Any) -> int:  # noqa: ANN401  # as above
    token: int = hold.fencing_token
    return token


HERD: Final = {"D16": "a release wakes a waiter of each process"}
"""The hole of the kind without a line of processes."""


@dataclass(frozen=True, slots=True)
class Handles:
    """How the handles of one kind are made, and what they offer."""

    title: str
    sync: Make
    asyncio: Make
    offers: frozenset[str]
    rival_sync: Make | None = None
    rival_asyncio: Make | None = None
    """Makes a handle that excludes it, where others of its own kind do not."""
    lapsing: Steps = _lapsing
    """End a lease as its time would."""
    ending: Steps = _ending
    """End it at once."""
    stores: tuple[str, ...] = ("redis",)
    """Those that share the plans of the plain lock are run on Redis only: the memory store differs in no row."""
    servers: int = 1
    names: int = 1
    """How many names a handle locks at once."""
    token: Callable[[Any], int] = _token
    """Its fencing token."""
    tells_rest: bool = True
    """Whether its store can report that a waiter has come to rest."""
    key_lapses: bool = True
    """Whether the server ends its key by itself."""
    holes: dict[str, str] = field(default_factory=dict)
    """Rows that it fails, with the reason; the suite checks that it does."""


LONG_AGO: Final = "1.000000"
BY_THREAD: Final = {"owner": thread_owner, "renew": False}
BY_TASK: Final = {"owner": task_owner, "renew": False}


def claims(hold: Any) -> list[LockClaim]:  # noqa: ANN401  # of either colour
    """Return the claims of a lease on several names."""
    return [LockClaim(name, hold.holder_id, LAPSE_MS) for name in hold.names]


def _reading(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # a constructor's
    return ReadWriteLock(store, name, **options).read


def _writing(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # as above
    return ReadWriteLock(store, name, **options).write


def _reading_async(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # as above
    return AsyncReadWriteLock(store, name, **options).read


def _writing_async(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # as above
    return AsyncReadWriteLock(store, name, **options).write


USES: Final = (
    Use(
        "lock",
        "exclusive",
        lambda name, me: op.AcquireLock(name, me, LONG_MS),
        lambda name, me: op.RenewLock(name, me, LONG_MS),
        op.ReleaseLock,
    ),
    Use(
        "fair",
        "exclusive",
        lambda name, me: op.AcquireFair(name, me, "process", LONG_MS, TIMES),
        lambda name, me: op.RenewFair(name, me, LONG_MS),
        lambda name, me: op.ReleaseFair(name, me, TIMES),
    ),
    Use(
        "quorum",
        "exclusive",
        lambda name, me: op.AcquireVote(name, me, LONG_MS),
        lambda name, me: op.RenewVote(name, me, LONG_MS),
        op.ReleaseVote,
    ),
    Use(
        "read_write",
        "read",
        lambda name, me: op.AcquireRead(name, me, LONG_MS),
        lambda name, me: op.RenewReadWrite(name, me, LONG_MS),
        op.ReleaseReadWrite,
    ),
    Use(
        "read_write",
        "write",
        lambda name, me: op.AcquireWrite(name, me, LONG_MS),
        lambda name, me: op.RenewReadWrite(name, me, LONG_MS),
        op.ReleaseReadWrite,
    ),
    Use(
        "reentrant",
        "exclusive",
        lambda name, me: op.AcquireReentrant(name, f"owner {me}", me, LONG_MS),
        lambda name, me: op.RenewReentrant(name, f"owner {me}", me, LONG_MS),
        lambda name, me: op.ReleaseReentrant(name, f"owner {me}", me),
        names_owner=True,
    ),
    Use(
        "semaphore",
        "permit",
        lambda name, me: op.AcquirePermit(name, me, LONG_MS, 1),
        lambda name, me: op.RenewPermit(name, me, LONG_MS),
        op.ReleasePermit,
    ),
)
"""How each kind is held by its operations."""
HANDLES: Final = (
    Handles(
        "Lock",
        Lock,
        AsyncLock,
        EVERY_LEASE | {"alone", "fencing", "replicas", "decorator", "transaction", "single flight"},
        stores=("redis", "memory"),
    ),
    Handles("FairLock", FairLock, AsyncFairLock, EVERY_LEASE | {"alone", "fencing", "fair"}),
    Handles(
        "GetSetLock (historical)",
        GetSetLock,
        AsyncGetSetLock,
        frozenset({"ttl", "alone", "with"}),
        lapsing=lambda hold: [op.GetSet(hold.name, LONG_AGO)],
        ending=lambda hold: [op.DeleteValue(hold.name)],
        tells_rest=False,
        key_lapses=False,
        holes={
            "A1": "an owner that slept deletes its successor's key",
            "A2": "the same",
            "A7": "a DEL that runs twice finds nothing the second time",
            "A13": "nothing repeats a DEL that was cancelled",
            "B4": "it counts from when it asked, and does not look again",
            "B10": "a client whose clock is ahead takes a lock that is held",
            "D11": "nothing undoes a SETNX that was cancelled",
            "E1": "a SETNX that runs twice finds its own value the second time",
        },
    ),
    Handles(
        "MultiLock (2 names)",
        lambda store, name, **options: MultiLock(store, [name, f"{name}-second"], **options),
        lambda store, name, **options: AsyncMultiLock(store, [name, f"{name}-second"], **options),
        EVERY_LEASE | {"alone", "fencing"},
        lapsing=lambda hold: [claim.renewing(LAPSE_MS) for claim in claims(hold)],
        ending=lambda hold: [claim.releasing() for claim in claims(hold)[:1]],  # one of them is enough
        token=lambda hold: min(hold.fencing_tokens.values()),
        names=2,
    ),
    Handles(
        "QuorumLock (3 servers)",
        QuorumLock,
        AsyncQuorumLock,
        EVERY_LEASE | {"alone", "quorum"},
        servers=3,
        tells_rest=False,
        holes=HERD,
    ),
    Handles(
        "ReadWriteLock (read)",
        _reading,
        _reading_async,
        EVERY_LEASE | {"fencing"},
        rival_sync=_writing,
        rival_asyncio=_writing_async,
    ),
    Handles(
        "ReadWriteLock (write)",
        _writing,
        _writing_async,
        EVERY_LEASE | {"alone", "fencing"},
        rival_sync=_reading,
        rival_asyncio=_reading_async,
    ),
    Handles(
        "ReentrantLock",
        lambda store, name, **options: ReentrantLock(store, name, **{**BY_THREAD, **options}),
        lambda store, name, **options: AsyncReentrantLock(store, name, **{**BY_TASK, **options}),
        EVERY_LEASE | {"alone", "fencing", "reentrant"},
    ),
    Handles(
        "Semaphore (1 permit)",
        lambda store, name, **options: Semaphore(store, name, permits=1, **options),
        lambda store, name, **options: AsyncSemaphore(store, name, permits=1, **options),
        EVERY_LEASE | {"alone", "fencing"},
    ),
)
"""How the handles of each kind are made."""
HEAD: Final = """\
# Kinds of lock

Written by `make docs` from the records of the kinds (`LOCK_KINDS`). `segmented lock list`, `show` and
`revoke` know all of these kinds. A name belongs to one kind at a time. Which one fits: [Choose a
lock](../how-to/choose-a-lock.md).

Each class of `segmented.locks` has an asyncio form with `Async` before its name. Waiters are those that `segmented lock
show` counts in a queue.

| kind | class | holders | fencing token | waiters | folder |
| --- | --- | --- | --- | --- | --- |
"""
SAID: Final = {True: "yes", False: "no"}


def page() -> str:
    """Return the page in Markdown."""
    rows = (
        f"| `{kind.name}` | `{kind.handle}` | {kind.holders} | {SAID[kind.has_token]} | {SAID[kind.counts_waiters]} "
        f"| `segmented/protocol/{kind.folder or kind.name}/` |\n"
        for kind in LOCK_KINDS
    )
    return f"{HEAD}{''.join(rows)}"


if __name__ == "__main__":
    sys.stdout.write(page())

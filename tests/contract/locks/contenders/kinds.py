"""The kinds of lock of this library, one entry each: how a handle is made, and what the kind offers.

A new kind joins the suite, in both colours, by an entry in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from segmented.locks import (
    AsyncGetSetLock,
    AsyncLock,
    AsyncMultiLock,
    AsyncReadWriteLock,
    AsyncSemaphore,
    GetSetLock,
    Lock,
    MultiLock,
    ReadWriteLock,
    Semaphore,
)
from segmented.locks.fair import AsyncFairLock, FairLock
from segmented.locks.quorum import AsyncQuorumLock, QuorumLock
from segmented.locks.reentrant import AsyncReentrantLock, ReentrantLock, task_owner, thread_owner
from segmented.protocol import DeleteValue, GetSet, Operation

Make = Callable[..., Any]
"""Makes a handle of a store, a name and options."""
Steps = Callable[[Any], Sequence[Operation[Any]]]
"""Says by which operations something is done to a lease behind its holder's back."""

EVERY_LEASE: Final = frozenset({"ttl", "with", "renewal", "background", "telling", "listening"})
"""What the shell that nearly all kinds share gives each of them."""
LAPSE_MS: Final = 1
LONG_AGO: Final = "1.000000"
BY_THREAD: Final = {"owner": thread_owner, "renew": False}
BY_TASK: Final = {"owner": task_owner, "renew": False}


def _lapsing(hold: Any) -> Sequence[Operation[Any]]:  # noqa: ANN401  # the lease of any kind
    return [hold.claim.renewing(LAPSE_MS)]


def _ending(hold: Any) -> Sequence[Operation[Any]]:  # noqa: ANN401  # as above
    return [hold.claim.releasing()]


def _token(hold: Any) -> int:  # noqa: ANN401  # as above
    token: int = hold.fencing_token
    return token


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of lock."""

    title: str
    sync: Make
    asyncio: Make
    offers: frozenset[str]
    rival_sync: Make | None = None
    rival_asyncio: Make | None = None
    """What excludes it, where others of its own kind do not."""
    lapsing: Steps = _lapsing
    """End a lease as its time would."""
    ending: Steps = _ending
    """End it at once."""
    stores: tuple[str, ...] = ("redis",)
    """Those that share the plans of the plain lock are run on Redis only: the memory store differs in no row."""
    servers: int = 1
    token: Callable[[Any], int] = _token
    """Its fencing token."""
    tells_rest: bool = True
    """Can its store say that a waiter has come to rest?"""
    key_lapses: bool = True
    """Does the server end its key by itself?"""
    key_life_ms: int = 0
    """How much longer than the lease its key may live."""
    holes: dict[str, str] = field(default_factory=dict)
    """Rows that it fails, with the reason; the suite checks that it does."""


def _reading(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # a constructor's
    return ReadWriteLock(store, name, **options).read


def _writing(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # as above
    return ReadWriteLock(store, name, **options).write


def _reading_async(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # as above
    return AsyncReadWriteLock(store, name, **options).read


def _writing_async(store: Any, name: str, **options: Any) -> Any:  # noqa: ANN401  # as above
    return AsyncReadWriteLock(store, name, **options).write


KINDS: Final = (
    Kind(
        "Lock",
        Lock,
        AsyncLock,
        EVERY_LEASE | {"alone", "fencing", "replicas", "decorator", "transaction", "single flight"},
        stores=("redis", "memory"),
    ),
    Kind(
        "ReadWriteLock (read)",
        _reading,
        _reading_async,
        EVERY_LEASE | {"fencing"},
        rival_sync=_writing,
        rival_asyncio=_writing_async,
    ),
    Kind(
        "ReadWriteLock (write)",
        _writing,
        _writing_async,
        EVERY_LEASE | {"alone", "fencing"},
        rival_sync=_reading,
        rival_asyncio=_reading_async,
    ),
    Kind(
        "ReentrantLock",
        lambda store, name, **options: ReentrantLock(store, name, **{**BY_THREAD, **options}),
        lambda store, name, **options: AsyncReentrantLock(store, name, **{**BY_TASK, **options}),
        EVERY_LEASE | {"alone", "fencing", "reentrant"},
    ),
    Kind("FairLock", FairLock, AsyncFairLock, EVERY_LEASE | {"alone", "fencing", "fair"}),
    Kind(
        "QuorumLock (3 servers)",
        QuorumLock,
        AsyncQuorumLock,
        EVERY_LEASE | {"alone", "quorum"},
        servers=3,
        tells_rest=False,
    ),
    Kind(
        "Semaphore (1 permit)",
        lambda store, name, **options: Semaphore(store, name, permits=1, **options),
        lambda store, name, **options: AsyncSemaphore(store, name, permits=1, **options),
        EVERY_LEASE | {"alone", "fencing"},
    ),
    Kind(
        "MultiLock (2 names)",
        lambda store, name, **options: MultiLock(store, [name, f"{name}-second"], **options),
        lambda store, name, **options: AsyncMultiLock(store, [name, f"{name}-second"], **options),
        EVERY_LEASE | {"alone", "fencing"},
        lapsing=lambda hold: [part.claim.renewing(LAPSE_MS) for part in hold._parts],  # noqa: SLF001  # no other way in
        ending=lambda hold: [part.claim.releasing() for part in hold._parts[:1]],  # noqa: SLF001  # one of them is enough
        token=lambda hold: min(hold.fencing_tokens.values()),
    ),
    Kind(
        "GetSetLock (historical)",
        GetSetLock,
        AsyncGetSetLock,
        frozenset({"ttl", "alone", "with"}),
        lapsing=lambda hold: [GetSet(hold.name, LONG_AGO)],
        ending=lambda hold: [DeleteValue(hold.name)],
        tells_rest=False,
        key_lapses=False,
        holes={
            "A1": "an owner that slept deletes its successor's key",
            "A2": "the same",
            "A7": "a DEL that runs twice finds nothing the second time",
            "B4": "it counts from when it asked, and does not look again",
            "B10": "a client whose clock is ahead takes a lock that is held",
            "D11": "nothing undoes a SETNX that was cancelled",
            "E1": "a SETNX that runs twice finds its own value the second time",
        },
    ),
)

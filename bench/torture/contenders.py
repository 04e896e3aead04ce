"""How a contender takes each kind of lock, and what it then holds: names, tokens and a lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from bench.torture.events import EXCLUSIVE, PERMIT, SHARED
from bench.torture.kinds import PERMITS
from segmented.locks.fair import FairLock
from segmented.locks.lock import Lock
from segmented.locks.multi import MultiLock
from segmented.locks.quorum import QuorumLock
from segmented.locks.read_write import ReadWriteLock
from segmented.locks.reentrant import ReentrantLock, thread_owner
from segmented.locks.semaphore import Semaphore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from segmented.locks.lease import Lease
    from segmented.plans.drivers import Store
    from segmented.stores.quorum import QuorumStore

WRITERS: Final = 0.4
"""Share of writers among those who take a lock of readers and writers."""
SINGLES: Final = 0.3
"""Share of plain locks among those who take several names at once."""
AGAIN: Final = 0.3
"""Share of owners who enter again."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be taken, and how."""

    names: Sequence[str]
    """Those that all contend for."""
    name: str
    """The one to take, where it is one."""
    ttl: float
    renew: bool
    timeout: float


class AnyLease(Protocol):
    """What all leases have in common."""

    @property
    def trusted_until(self) -> float:
        """Return the local time after which it must no longer be trusted."""

    def renew(self, *, ttl: float | None = None) -> None:
        """Push the end out."""

    def release(self) -> None:
        """End it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lease, as the resource is to know it."""

    lease: AnyLease
    holder: str
    tokens: Mapping[str, int | None]
    """Of each name."""
    mode: str = EXCLUSIVE
    again: Callable[[], Held] | None = None
    """Enter once more, as the same owner."""


def _of(lease: Lease, mode: str = EXCLUSIVE) -> Held:
    return Held(lease, lease.holder_id, {lease.name: lease.fencing_token}, mode)


def _lock(store: Store, wish: Wish, _: Random) -> Held:
    return _of(Lock(store, wish.name, ttl=wish.ttl, renew=wish.renew).acquire(timeout=wish.timeout))


def _fair(store: Store, wish: Wish, _: Random) -> Held:
    return _of(FairLock(store, wish.name, ttl=wish.ttl, renew=wish.renew).acquire(timeout=wish.timeout))


def _reentrant(store: Store, wish: Wish, random: Random) -> Held:
    lock = ReentrantLock(store, wish.name, ttl=wish.ttl, renew=wish.renew, owner=thread_owner)

    def entered() -> Held:
        lease = lock.acquire(timeout=wish.timeout)
        return Held(lease, thread_owner(), {wish.name: lease.fencing_token})

    first = entered()
    again = entered if random.random() < AGAIN else None
    return Held(first.lease, first.holder, first.tokens, again=again)


def _read_write(store: Store, wish: Wish, random: Random) -> Held:
    lock = ReadWriteLock(store, wish.name, ttl=wish.ttl, renew=wish.renew)
    if random.random() < WRITERS:
        return _of(lock.write.acquire(timeout=wish.timeout))
    return _of(lock.read.acquire(timeout=wish.timeout), SHARED)


def _semaphore(store: Store, wish: Wish, _: Random) -> Held:
    semaphore = Semaphore(store, wish.name, permits=PERMITS, ttl=wish.ttl, renew=wish.renew)
    return _of(semaphore.acquire(timeout=wish.timeout), PERMIT)


def _multi(store: Store, wish: Wish, random: Random) -> Held:
    if random.random() < SINGLES:
        return _lock(store, wish, random)
    names = random.sample(wish.names, min(2, len(wish.names)))
    lease = MultiLock(store, names, ttl=wish.ttl, renew=wish.renew).acquire(timeout=wish.timeout)
    return Held(lease, lease.holder_id, dict(lease.fencing_tokens))


def _quorum(store: Store, wish: Wish, _: Random) -> Held:
    lock = QuorumLock(cast("QuorumStore", store), wish.name, ttl=wish.ttl, renew=wish.renew)
    lease = lock.acquire(timeout=wish.timeout)
    return Held(lease, lease.holder_id, {wish.name: None})


CONTENDERS: Final[dict[str, Callable[[Store, Wish, Random], Held]]] = {
    "lock": _lock,
    "reentrant": _reentrant,
    "fair": _fair,
    "read_write": _read_write,
    "semaphore": _semaphore,
    "multi": _multi,
    "quorum": _quorum,
}

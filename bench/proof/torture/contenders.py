"""How a contender acquires each kind of lock, and what it then holds: names, tokens and a lease."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from bench.proof.torture.events import EXCLUSIVE, PERMIT, SHARED
from bench.proof.torture.options import PERMITS
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
"""Share of writers among the users of a read-write lock."""
SINGLES: Final = 0.3
"""Share of plain locks among the multi-name acquisitions."""
AGAIN: Final = 0.3
"""Share of owners that acquire again while they hold the lock."""


@dataclass(frozen=True, slots=True)
class LockRequest:
    """Which lock to acquire, and how."""

    names: Sequence[str]
    """All names of the run."""
    name: str
    """The name to acquire, for kinds with one name."""
    ttl: float
    renew: bool
    timeout: float


class AnyLease(Protocol):
    """The interface of all leases."""

    @property
    def trusted_until(self) -> float:
        """Return the local time after which the lease must not be trusted."""

    def renew(self, *, ttl: float | None = None) -> None:
        """Extend the lease."""

    def release(self) -> None:
        """End the lease."""


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A held lease, as the resource sees it."""

    lease: AnyLease
    holder: str
    tokens: Mapping[str, int | None]
    """Fencing token by name."""
    mode: str = EXCLUSIVE
    again: Callable[[], HeldLease] | None = None
    """Acquires once more, as the same owner."""


def _of(lease: Lease, mode: str = EXCLUSIVE) -> HeldLease:
    return HeldLease(lease, lease.holder_id, {lease.name: lease.fencing_token}, mode)


def _lock(store: Store, request: LockRequest, _: Random) -> HeldLease:
    return _of(Lock(store, request.name, ttl=request.ttl, renew=request.renew).acquire(timeout=request.timeout))


def _fair(store: Store, request: LockRequest, _: Random) -> HeldLease:
    return _of(FairLock(store, request.name, ttl=request.ttl, renew=request.renew).acquire(timeout=request.timeout))


def _reentrant(store: Store, request: LockRequest, random: Random) -> HeldLease:
    lock = ReentrantLock(store, request.name, ttl=request.ttl, renew=request.renew, owner=thread_owner)

    def entered() -> HeldLease:
        lease = lock.acquire(timeout=request.timeout)
        return HeldLease(lease, thread_owner(), {request.name: lease.fencing_token})

    first = entered()
    again = entered if random.random() < AGAIN else None
    return HeldLease(first.lease, first.holder, first.tokens, again=again)


def _read_write(store: Store, request: LockRequest, random: Random) -> HeldLease:
    lock = ReadWriteLock(store, request.name, ttl=request.ttl, renew=request.renew)
    if random.random() < WRITERS:
        return _of(lock.write.acquire(timeout=request.timeout))
    return _of(lock.read.acquire(timeout=request.timeout), SHARED)


def _semaphore(store: Store, request: LockRequest, _: Random) -> HeldLease:
    semaphore = Semaphore(store, request.name, permits=PERMITS, ttl=request.ttl, renew=request.renew)
    return _of(semaphore.acquire(timeout=request.timeout), PERMIT)


def _multi(store: Store, request: LockRequest, random: Random) -> HeldLease:
    if random.random() < SINGLES:
        return _lock(store, request, random)
    names = random.sample(request.names, min(2, len(request.names)))
    lease = MultiLock(store, names, ttl=request.ttl, renew=request.renew).acquire(timeout=request.timeout)
    return HeldLease(lease, lease.holder_id, dict(lease.fencing_tokens))


def _quorum(store: Store, request: LockRequest, _: Random) -> HeldLease:
    lock = QuorumLock(cast("QuorumStore", store), request.name, ttl=request.ttl, renew=request.renew)
    lease = lock.acquire(timeout=request.timeout)
    return HeldLease(lease, lease.holder_id, {request.name: None})


CONTENDERS: Final[dict[str, Callable[[Store, LockRequest, Random], HeldLease]]] = {
    "lock": _lock,
    "reentrant": _reentrant,
    "fair": _fair,
    "read_write": _read_write,
    "semaphore": _semaphore,
    "multi": _multi,
    "quorum": _quorum,
}

"""What the tests of locks that several may hold have in common: handles on any side, and waiters at rest."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol, TypeVar

from segmented.locks import (
    AsyncMultiLock,
    AsyncReadWriteLock,
    AsyncSemaphore,
    Lease,
    MultiLock,
    ReadWriteLock,
    Semaphore,
)
from tests.fixtures.stores import Side
from tests.support.contract.parking import has_come_to_rest, wait_until

LONG: Final = 600.0
PATIENCE: Final = 600.0
SOON: Final = 120.0
"""A bound for what takes milliseconds, generous on a busy machine and far below LONG."""

LeaseT_co = TypeVar("LeaseT_co", covariant=True)


class Handle(Protocol[LeaseT_co]):
    """Whatever has leases."""

    def acquire(self, *, timeout: float | None = ...) -> LeaseT_co:
        """Wait for one."""


def book(side: Side, name: str, *, ttl: float = LONG) -> ReadWriteLock:
    """Make a lock of readers and writers."""
    return side.made(
        lambda store: ReadWriteLock(store, name, ttl=ttl), lambda store: AsyncReadWriteLock(store, name, ttl=ttl)
    )


def room(side: Side, name: str, *, permits: int, ttl: float = LONG) -> Semaphore:
    """Make a semaphore."""
    return side.made(
        lambda store: Semaphore(store, name, permits=permits, ttl=ttl),
        lambda store: AsyncSemaphore(store, name, permits=permits, ttl=ttl),
    )


def several(side: Side, names: Sequence[str], *, ttl: float = LONG, renew: bool = False) -> MultiLock:
    """Make a lock on several names."""
    return side.made(
        lambda store: MultiLock(store, names, ttl=ttl, renew=renew),
        lambda store: AsyncMultiLock(store, names, ttl=ttl, renew=renew),
    )


def let_lapse(side: Side, lease: Lease) -> None:
    """End a lease on the server as its time would, while its holder still trusts it."""
    side.execute(lease.claim.renewing(1))
    side.pass_time(0.005)


def new_names(side: Side, letters: str = "abc") -> list[str]:
    """Return names that belong together, in order."""
    word = side.name("part")
    return [f"{word}-{letter}" for letter in letters]


def start_waiting(
    side: Side, lock: Handle[LeaseT_co], waiters: int = 1, *, after: int = 0, timeout: float = PATIENCE
) -> list[Future[LeaseT_co]]:
    """Start acquires that find the lock taken, beside `after` others, and return once they have come to rest."""
    started = []
    for index in range(waiters):
        started.append(side.start(lambda: lock.acquire(timeout=timeout)))
        wait_until(partial(has_come_to_rest, side.store, after + index + 1))
    return started

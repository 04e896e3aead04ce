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


def book(side: Side, name: str) -> ReadWriteLock:
    """Make a lock of readers and writers."""
    return side.made(
        lambda store: ReadWriteLock(store, name, ttl=LONG), lambda store: AsyncReadWriteLock(store, name, ttl=LONG)
    )


def room(side: Side, name: str, *, permits: int) -> Semaphore:
    """Make a semaphore."""
    return side.made(
        lambda store: Semaphore(store, name, permits=permits, ttl=LONG),
        lambda store: AsyncSemaphore(store, name, permits=permits, ttl=LONG),
    )


def several(side: Side, names: Sequence[str], *, ttl: float = LONG) -> MultiLock:
    """Make a lock on several names."""
    return side.made(
        lambda store: MultiLock(store, names, ttl=ttl),
        lambda store: AsyncMultiLock(store, names, ttl=ttl),
    )


def let_lapse(side: Side, lease: Lease) -> None:
    """End a lease on the server as its time would, while its holder still trusts it."""
    side.execute(lease.claim.renewing(1))
    side.pass_time(0.005)


def new_names(side: Side) -> list[str]:
    """Return names that belong together, in order."""
    word = side.name("part")
    return [f"{word}-{letter}" for letter in "abc"]


def start_waiting(side: Side, lock: Handle[LeaseT_co], waiters: int = 1) -> list[Future[LeaseT_co]]:
    """Start acquires that find the lock taken, and return once they have come to rest."""
    started = []
    for index in range(waiters):
        started.append(side.start(lambda: lock.acquire(timeout=PATIENCE)))
        wait_until(partial(has_come_to_rest, side.store, index + 1))
    return started

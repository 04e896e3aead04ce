"""python-redis-lock, whose waiters block on a list to which a release pushes: there is no pause to configure.

Its renewal thread is off, as by default. A wait is whole seconds and up to the length of a lease, so it is repeated.
"""

from __future__ import annotations

import time
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

from bench.strategies.base import LEASE_SECONDS
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.library_lock import LibraryLock, needed

if TYPE_CHECKING:
    from bench.strategies.base import StrategyContext


class GlobalPythonRedisLock(LibraryLock):
    """Waits with a blocking command."""

    name: ClassVar[str] = "global-python-redis-lock"
    summary: ClassVar[str] = "one lock of python-redis-lock: waiters block on a list"

    def __init__(self, context: StrategyContext) -> None:
        """Import the library."""
        self._library = needed(self.name, "redis_lock")
        super().__init__(context)

    @property
    def lock_keys(self) -> tuple[str, ...]:
        """Return the lock's key, and the list to which a release pushes."""
        return f"lock:{self.lock_name}", f"lock-signal:{self.lock_name}"

    def acquire(self) -> Any | None:  # noqa: ANN401  # a library without types
        """Block until the lock is free."""
        lock = self._library.Lock(self.client, self.lock_name, expire=int(LEASE_SECONDS))
        until = time.monotonic() + WAIT_SECONDS
        while (seconds := until - time.monotonic()) > 0:
            if lock.acquire(timeout=ceil(min(seconds, LEASE_SECONDS))):
                return lock
        return None

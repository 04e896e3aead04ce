"""redis-py's own lock, which retries after a pause: at its defaults, and with the best pause.

The pause was chosen by trying 20, 30, 50, 70, 100 and 150 ms with 64 buyers and holds of 1 and 20 ms, three rounds
each, and 200, 300 and 500 ms twice. Shorter pauses are worse: that many buyers saturate the processors with retries.
From 50 ms on, a hold of 20 ms sells the same; a hold of 1 ms sells most at 150 ms. Longer pauses gain nothing, and at
500 ms buyers wait longer than necessary. The other settings make no difference here: waiting is on by default, and so
is a token per thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from redis.lock import Lock

from bench.strategies.base import LEASE_SECONDS
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.library_lock import LibraryLock

if TYPE_CHECKING:
    from redis.lock import Lock as RedisPyLock

DEFAULT_PAUSE: Final = 0.1
PAUSE: Final = 0.15
"""Seconds."""


class GlobalRedisPy(LibraryLock):
    """Retries every 100 ms, the default."""

    name: ClassVar[str] = "global-redis-py"
    summary: ClassVar[str] = "one lock of redis-py at its defaults: asks every 100 ms"
    pause: ClassVar[float] = DEFAULT_PAUSE

    @property
    def lock_keys(self) -> tuple[str, ...]:
        """Return the lock's key."""
        return (self.lock_name,)

    def acquire(self) -> RedisPyLock | None:
        """Retry until the lock is free."""
        lock = Lock(self.client, self.lock_name, timeout=LEASE_SECONDS, sleep=self.pause, blocking_timeout=WAIT_SECONDS)
        return lock if lock.acquire() else None


class GlobalRedisPyBest(GlobalRedisPy):
    """Retries with the best pause."""

    name: ClassVar[str] = "global-redis-py-best"
    summary: ClassVar[str] = f"one lock of redis-py with the best of its pauses: asks every {PAUSE * 1_000:g} ms"
    pause: ClassVar[float] = PAUSE

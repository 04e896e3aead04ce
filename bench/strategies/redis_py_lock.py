"""redis-py's own lock, which asks again after a pause: at its defaults, and with the pause that served best.

The pause was chosen by trying 1, 2, 5, 10 and 20 ms, 64 buyers, holds of 1 and of 20 ms: see `PAUSE`. Its other
settings change nothing here: waiting is on by default, and so is a token that belongs to one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from redis.lock import Lock

from bench.strategies.base import LEASE_SECONDS
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.others_locks import OthersLock

if TYPE_CHECKING:
    from redis.lock import Lock as RedisPyLock

DEFAULT_PAUSE: Final = 0.1
PAUSE: Final = 0.02
"""Seconds."""


class GlobalRedisPy(OthersLock):
    """A pause of 100 ms, which is the default."""

    name: ClassVar[str] = "global-redis-py"
    summary: ClassVar[str] = "one lock of redis-py at its defaults: asks every 100 ms"
    pause: ClassVar[float] = DEFAULT_PAUSE

    @property
    def lock_keys(self) -> tuple[str, ...]:
        """Name the key."""
        return (self.lock_name,)

    def acquire(self) -> RedisPyLock | None:
        """Ask until it is free."""
        lock = Lock(self.client, self.lock_name, timeout=LEASE_SECONDS, sleep=self.pause, blocking_timeout=WAIT_SECONDS)
        return lock if lock.acquire() else None


class GlobalRedisPyBest(GlobalRedisPy):
    """The shorter pause."""

    name: ClassVar[str] = "global-redis-py-best"
    summary: ClassVar[str] = f"one lock of redis-py at its best: asks every {PAUSE * 1_000:g} ms"
    pause: ClassVar[float] = PAUSE

"""One global lock of another library around the same read-modify-write, all with the same lease and the same patience.

Their client counts how often a lock was asked for, because these libraries do not say. What was asked for since the
last sale is put down to the next one, so the sum is exact, and the count of a single order is not.

- redis-py's own lock asks again after a pause: at its default, and with the pause that served best. That was chosen by
  trying 20, 30, 50, 70, 100 and 150 ms with 64 buyers and holds of 1 and of 20 ms, three rounds each, and 200, 300 and
  500 ms twice. Shorter ones are worse: so many buyers use up the processors by asking. From 50 ms on a hold of 20 ms
  sells the same, and a hold of 1 ms most at 150 ms; beyond that nothing is won, and at 500 ms buyers wait in vain for
  longer than they would. Its other settings change nothing here: waiting is on by default, and so is a token that
  belongs to one thread.
- python-redis-lock has waiters that block on a list that a release pushes to: no pause to be set. Its renewal thread is
  off, which is its default. A wait is whole seconds, and as long as a lease at most, so it is repeated.
- pottery's Redlock has one master. It asks again after a random pause of up to 200 ms, which cannot be set. Every
  attempt and every release starts a thread of its own for its one master; a failed attempt sends a release as well. It
  has no setting that would serve better here, so this is also its best.
"""

from __future__ import annotations

import importlib
import time
from abc import abstractmethod
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Final

from redis.lock import Lock

from bench.strategies.base import LEASE_SECONDS, GaveUp, Refused
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.counted import CountedStrategy
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from redis.lock import Lock as RedisPyLock

    from bench.strategies.base import Answer, Stage
    from segmented.models import Order

DEFAULT_PAUSE: Final = 0.1
PAUSE: Final = 0.15
"""Seconds."""


def needed(strategy: str, module: str) -> Any:  # noqa: ANN401  # a module without types
    """Import a library. Raises InvalidInput that names what is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = f"{strategy} needs the package {module}: install segmented-locks[bench]"
        raise InvalidInput(message) from error


class OthersLock(CountedStrategy):
    """A counter under one lock of another library."""

    def __init__(self, stage: Stage) -> None:
        """Begin to count."""
        super().__init__(stage)
        self._counted = 0

    @property
    def lock_name(self) -> str:
        """Name the lock."""
        return f"bench:{self._sku}"

    @abstractmethod
    def acquire(self) -> Any | None:  # noqa: ANN401  # each library has its own
        """Return what has a `release` once the lock is held; None after `WAIT_SECONDS`."""

    @property
    @abstractmethod
    def lock_keys(self) -> tuple[str, ...]:
        """Name what the lock keeps on the server."""

    def buy(self, order: Order) -> Answer:
        """Wait for the lock, read, do the slow step, write, release."""
        lock = self.acquire()
        if lock is None:
            return GaveUp(f"the lock was not free within {WAIT_SECONDS:g} s")
        try:
            found = self._sell_guarded(order)
        except BaseException:
            with suppress(Exception):  # the first error is the one to tell
                lock.release()
            raise
        lock.release()
        if isinstance(found, Refused):
            return found
        asked = self.client.asked
        self._counted, attempts = asked, asked - self._counted
        return self._sold_at(found, attempts=attempts)

    def clear(self) -> None:
        """Remove counter, rows and lock."""
        super().clear()
        self.client.unlink(*self.lock_keys)


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
    """The pause that served best."""

    name: ClassVar[str] = "global-redis-py-best"
    summary: ClassVar[str] = f"one lock of redis-py with the best of its pauses: asks every {PAUSE * 1_000:g} ms"
    pause: ClassVar[float] = PAUSE


class GlobalPythonRedisLock(OthersLock):
    """Blocks on the server."""

    name: ClassVar[str] = "global-python-redis-lock"
    summary: ClassVar[str] = "one lock of python-redis-lock: waiters block on a list"

    def __init__(self, stage: Stage) -> None:
        """Find the library."""
        self._library = needed(self.name, "redis_lock")
        super().__init__(stage)

    @property
    def lock_keys(self) -> tuple[str, ...]:
        """Name the key, and the list that a release pushes to."""
        return f"lock:{self.lock_name}", f"lock-signal:{self.lock_name}"

    def acquire(self) -> Any | None:  # noqa: ANN401  # a library without types
        """Block until it is free."""
        lock = self._library.Lock(self.client, self.lock_name, expire=int(LEASE_SECONDS))
        until = time.monotonic() + WAIT_SECONDS
        while (seconds := until - time.monotonic()) > 0:
            if lock.acquire(timeout=ceil(min(seconds, LEASE_SECONDS))):
                return lock
        return None


class GlobalPottery(OthersLock):
    """A quorum of one."""

    name: ClassVar[str] = "global-pottery"
    summary: ClassVar[str] = "one Redlock of pottery over one master: asks every 100 ms on average"

    def __init__(self, stage: Stage) -> None:
        """Find the library."""
        self._library = needed(self.name, "pottery")
        super().__init__(stage)

    @property
    def lock_keys(self) -> tuple[str, ...]:
        """Name the key."""
        return (f"redlock:{self.lock_name}",)

    def acquire(self) -> Any | None:  # noqa: ANN401  # a library without types
        """Ask until it is free."""
        lock = self._library.Redlock(
            key=self.lock_name, masters={self.client}, auto_release_time=LEASE_SECONDS, raise_on_redis_errors=True
        )
        return lock if lock.acquire(timeout=WAIT_SECONDS) else None

"""A lock of another library around the same read-modify-write, all with the same lease time and timeout.

The Redis client counts lock requests, because these libraries do not report them. Requests since the last sale are
attributed to the next one, so the sum is exact, but the count of a single order is not.

redis-py's own lock, which retries after a pause: at its defaults, and with the best pause.

The pause was chosen by trying 20, 30, 50, 70, 100 and 150 ms with 64 buyers and holds of 1 and 20 ms, three rounds
each, and 200, 300 and 500 ms twice. Shorter pauses are worse: that many buyers saturate the processors with retries.
From 50 ms on, a hold of 20 ms sells the same; a hold of 1 ms sells most at 150 ms. Longer pauses gain nothing, and at
500 ms buyers wait longer than necessary. The other settings make no difference here: waiting is on by default, and so
is a token per thread.

The same lock striped over K keys, the obvious way to have K locks without a library for it: a counter for each, and a
buyer draws one at random and waits for it, as for a bucket of a hash. Once its counter has too few units, the buyer
draws from those that have enough. Its faults: buyers queue for one key while others are free, and an order for several
units is refused if no single counter has enough. Its pause was chosen by trying 5, 10, 20, 50 and 100 ms with 64
buyers, 16 keys and holds of 1 and 20 ms, three rounds each: from 20 ms on, a hold of 20 ms sells the same, and a hold
of 1 ms sells more with 50 than with 20 ms. 100 ms gain less than the rounds differ, and let buyers wait longer.

python-redis-lock, whose waiters block on a list to which a release pushes: there is no pause to configure.

Its renewal thread is off, as by default. A wait is whole seconds and up to the length of a lease, so it is repeated.

pottery's Redlock with one master. It retries after a random pause of up to 200 ms, which is not configurable.

Every attempt and every release starts a thread for its one master; a failed attempt also sends a release. No setting
would be better here, so this is also its best configuration.
"""

from __future__ import annotations

import importlib
import random
import threading
import time
from abc import abstractmethod
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Final

from redis.lock import Lock

from bench.strategies.base import LEASE_SECONDS, WAIT_SECONDS, GaveUp, Refused
from bench.strategies.counted import CountedStrategy
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from redis.lock import Lock as RedisPyLock

    from bench.strategies.base import Answer, Guarantees, StrategyContext
    from segmented.models import Order

DEFAULT_PAUSE: Final = 0.1
PAUSE: Final = 0.15
STRIPED_PAUSE: Final = 0.05
"""Seconds."""


def needed(strategy: str, module: str) -> Any:  # noqa: ANN401  # a module without types
    """Import a library. Raises InvalidInput that names a missing package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidInput(f"{strategy} needs the package {module}: install segmented-locks[bench]") from error


class LibraryLock(CountedStrategy):
    """A counter under one lock of another library."""

    module: ClassVar[str] = "redis"
    """The library's."""

    def __init__(self, context: StrategyContext) -> None:
        """Import the library, and start counting lock requests."""
        self._library = needed(self.name, self.module)
        super().__init__(context)
        self._counted = 0

    def lock_name(self, segment: int) -> str:
        """Return the name of a segment's lock."""
        return f"bench:{self._sku}:lock:{segment}" if self.has_segments else f"bench:{self._sku}"

    @abstractmethod
    def acquire(self, name: str) -> Any | None:  # noqa: ANN401  # each library has its own type
        """Return an object with `release` when the lock is held, or None after `WAIT_SECONDS`."""

    @property
    @abstractmethod
    def lock_keys(self) -> tuple[str, ...]:
        """Return the keys of all its locks on the server."""

    def buy(self, order: Order) -> Answer:
        """Wait for the lock, read, run the slow step, write, release."""
        return self._buy_at(order, 0)

    def _buy_at(self, order: Order, segment: int) -> Answer:
        lock = self.acquire(self.lock_name(segment))
        if lock is None:
            return GaveUp(f"the lock was not free within {WAIT_SECONDS:g} s")
        try:
            found = self.sell_guarded(order, segment)
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                lock.release()
            raise
        lock.release()
        if isinstance(found, Refused):
            return found
        asked = self.client.asked
        self._counted, attempts = asked, asked - self._counted
        return self.sold_at(found, segment if self.has_segments else None, attempts=attempts)

    def clear(self) -> None:
        """Remove counter, rows and lock."""
        super().clear()
        self.client.unlink(*self.lock_keys)


class GlobalRedisPy(LibraryLock):
    """Retries every 100 ms, the default."""

    name: ClassVar[str] = "global-redis-py"
    summary: ClassVar[str] = "one lock of redis-py at its defaults: asks every 100 ms"
    pause: ClassVar[float] = DEFAULT_PAUSE

    @property
    def lock_keys(self) -> tuple[str, ...]:
        """Return the key of each lock."""
        return tuple(self.lock_name(segment) for segment in range(self.segments))

    def acquire(self, name: str) -> RedisPyLock | None:
        """Retry until the lock is free."""
        lock = Lock(self.client, name, timeout=LEASE_SECONDS, sleep=self.pause, blocking_timeout=WAIT_SECONDS)
        return lock if lock.acquire() else None


class GlobalRedisPyBest(GlobalRedisPy):
    """Retries with the best pause."""

    name: ClassVar[str] = "global-redis-py-best"
    summary: ClassVar[str] = f"one lock of redis-py with the best of its pauses: asks every {PAUSE * 1_000:g} ms"
    pause: ClassVar[float] = PAUSE


class StripedRedisPy(GlobalRedisPy):
    """One of K locks at random."""

    name: ClassVar[str] = "striped-redis-py"
    summary: ClassVar[str] = (
        f"redis-py's lock striped over K keys, a counter for each: asks every {STRIPED_PAUSE * 1_000:g} ms"
    )
    pause: ClassVar[float] = STRIPED_PAUSE
    has_segments: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(
        GlobalRedisPy.guarantees, sold_out_is_exact=False, section="one a segment"
    )

    def buy(self, order: Order) -> Answer:
        """Draw a key among those with enough units, and sell under its lock."""
        stripes = list(range(self.segments))
        while stripes:
            answer = self._buy_at(order, random.choice(stripes))  # not a secret; the run's seed repeats it
            if not isinstance(answer, Refused):
                return answer
            left = self.units_left()
            stripes = [stripe for stripe in stripes if left[stripe] >= order.quantity]
        return self.refusal(order)


class GlobalPythonRedisLock(LibraryLock):
    """Waits with a blocking command."""

    name: ClassVar[str] = "global-python-redis-lock"
    summary: ClassVar[str] = "one lock of python-redis-lock: waiters block on a list"
    module: ClassVar[str] = "redis_lock"

    def __init__(self, context: StrategyContext) -> None:
        """Start without a lock in any thread."""
        super().__init__(context)
        self._own = threading.local()

    @property
    def lock_keys(self) -> tuple[str, ...]:
        """Return the lock's key, and the list to which a release pushes."""
        return f"lock:{self.lock_name(0)}", f"lock-signal:{self.lock_name(0)}"

    def acquire(self, name: str) -> Any | None:  # noqa: ANN401  # a library without types
        """Block until the lock is free."""
        lock = getattr(self._own, "lock", None)
        if lock is None:  # as a service has it: one for each thread, not one for each order
            lock = self._own.lock = self._library.Lock(self.client, name, expire=int(LEASE_SECONDS))
        until = time.monotonic() + WAIT_SECONDS
        while (seconds := until - time.monotonic()) > 0:
            if lock.acquire(timeout=ceil(min(seconds, LEASE_SECONDS))):
                return lock
        return None


class GlobalPottery(LibraryLock):
    """A quorum of one."""

    name: ClassVar[str] = "global-pottery"
    summary: ClassVar[str] = "one Redlock of pottery over one master: asks every 100 ms on average"
    module: ClassVar[str] = "pottery"

    @property
    def lock_keys(self) -> tuple[str, ...]:
        """Return the lock's key."""
        return (f"redlock:{self.lock_name(0)}",)

    def acquire(self, name: str) -> Any | None:  # noqa: ANN401  # a library without types
        """Retry until the lock is free."""
        lock = self._library.Redlock(
            key=name, masters={self.client}, auto_release_time=LEASE_SECONDS, raise_on_redis_errors=True
        )
        return lock if lock.acquire(timeout=WAIT_SECONDS) else None

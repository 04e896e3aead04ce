"""K counters, each under a lock of ours: a buyer draws one and stays with it, or goes on to the next that is free.

`SegmentsRandom` stays, sold out or not. What is wrong with it: an order is refused as soon as the segment that it drew
is exhausted, however much the others have. That is its known fault, and the checker finds it.

`SegmentsTryNext` waits where it started when all are taken, goes on when a segment is exhausted, and refuses when all
are. A counter only goes down, so one that was read as exhausted is, lock or no lock; after the first of them a buyer
reads all. What is wrong with it: an order for several units is refused when no segment has as many, though they have
together.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import LEASE_SECONDS, GaveUp, Refused
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.counted import AskingStore, CountedStrategy
from segmented.errors import AcquireTimeout
from segmented.keys import lock_keys
from segmented.locks.lock import Lock

if TYPE_CHECKING:
    from bench.strategies.base import Answer, Guarantees
    from segmented.locks.lease import Lease
    from segmented.models import Order


class SegmentsRandom(CountedStrategy):
    """A segment at random, and no other."""

    name: ClassVar[str] = "segments-random"
    summary: ClassVar[str] = "K counters, each with a lock; a segment at random, and no other"
    has_segments: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(
        CountedStrategy.guarantees, sold_out_is_exact=False, section="one a segment"
    )

    @property
    def segments(self) -> int:
        """As many as asked for."""
        return self.stage.segments

    @property
    def lanes(self) -> int:
        """One a segment, as far as there are buyers for them."""
        return min(self.segments, self.stage.buyers)

    def open(self, sku: str, stock: int) -> None:
        """Set the counters, and name the locks."""
        super().open(sku, stock)
        self.store = AskingStore(self.stage.store)
        self.locks = [Lock(self.store, counter, ttl=LEASE_SECONDS) for counter in self.counters]

    def buy(self, order: Order) -> Answer:
        """Draw a segment, wait for its lock, read, do the slow step, write, release."""
        segment = random.randrange(self.segments)  # no secret; the run's seed repeats it
        try:
            lease = self.locks[segment].acquire(timeout=WAIT_SECONDS)
        except AcquireTimeout as error:
            return GaveUp(str(error))
        with lease:
            found = self._sell_guarded(order, segment)
        return found if isinstance(found, Refused) else self._sold_at(found, segment, attempts=self.store.attempts())

    def clear(self) -> None:
        """Remove the counters and what the locks keep."""
        super().clear()
        for lock in self.locks:
            keys = lock_keys(lock.name)
            self.client.unlink(keys.lock, keys.fence)


class SegmentsTryNext(SegmentsRandom):
    """The next that is free."""

    name: ClassVar[str] = "segments-try-next"
    summary: ClassVar[str] = "K counters, each with a lock; from a segment at random to the next that is free"

    def buy(self, order: Order) -> Answer:
        """Find a segment with units whose lock is free, do the slow step under it."""
        first = random.randrange(self.segments)  # no secret; the run's seed repeats it
        round_trip = [(first + step) % self.segments for step in range(self.segments)]
        until = time.monotonic() + WAIT_SECONDS
        while round_trip:
            taken = self._first_free(round_trip, until)
            if taken is None:
                return GaveUp(f"no segment was free within {WAIT_SECONDS:g} s")
            segment, lease = taken
            with lease:
                found = self._sell_guarded(order, segment)
            if not isinstance(found, Refused):
                return self._sold_at(found, segment, attempts=self.store.attempts())
            left = self._left()
            round_trip = [other for other in round_trip if left[other] >= order.quantity]
        return Refused(self._taken, order.quantity)

    def _first_free(self, segments: list[int], until: float) -> tuple[int, Lease] | None:
        """Return the first of these segments that is free, and its lease; wait for the very first if none is."""
        for segment in segments:
            lease = self.locks[segment].try_acquire()
            if lease is not None:
                return segment, lease
        try:
            return segments[0], self.locks[segments[0]].acquire(timeout=max(0.0, until - time.monotonic()))
        except AcquireTimeout:
            return None

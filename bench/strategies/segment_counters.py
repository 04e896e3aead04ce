"""K counters, each under one of our locks: a buyer draws one at random and uses no other.

Its fault: an order is refused as soon as its random segment is exhausted, however many units the others have. The
checker reports that.

K counters, each under one of our locks: a buyer starts at a random segment and takes the next free one.

If all locks are taken, it waits for the first; if a segment is exhausted, it tries the next, and refuses if all are. A
counter only decreases, so a segment read as exhausted stays so, even without its lock; after the first exhausted one a
buyer reads all counters.

Its fault: an order for several units is refused if no single segment has enough, although together they have.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import LEASE_SECONDS, WAIT_SECONDS, GaveUp, Refused
from bench.strategies.counted import CountedStrategy, CountingStore
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

    def open(self, sku: str, stock: int) -> None:
        """Set the counters, and create the locks."""
        super().open(sku, stock)
        self.store = CountingStore(self.context.store)
        self.locks = [Lock(self.store, counter, ttl=LEASE_SECONDS) for counter in self.counters]

    def buy(self, order: Order) -> Answer:
        """Draw a segment, wait for its lock, read, run the slow step, write, release."""
        segment = random.randrange(self.segments)  # not a secret; the run's seed repeats it
        try:
            lease = self.locks[segment].acquire(timeout=WAIT_SECONDS)
        except AcquireTimeout as error:
            return GaveUp(str(error))
        with lease:
            found = self.sell_guarded(order, segment)
        return found if isinstance(found, Refused) else self.sold_at(found, segment, attempts=self.store.attempts())

    def clear(self) -> None:
        """Remove the counters and the locks' keys."""
        super().clear()
        for lock in self.locks:
            keys = lock_keys(lock.name)
            self.client.unlink(keys.lock, keys.fence)


class SegmentsTryNext(SegmentsRandom):
    """The next that is free."""

    name: ClassVar[str] = "segments-try-next"
    summary: ClassVar[str] = "K counters, each with a lock; from a segment at random to the next that is free"

    def buy(self, order: Order) -> Answer:
        """Find a segment with units and a free lock, and run the slow step under it."""
        first = random.randrange(self.segments)  # not a secret; the run's seed repeats it
        round_trip = [(first + step) % self.segments for step in range(self.segments)]
        until = time.monotonic() + WAIT_SECONDS
        while round_trip:
            taken = self._first_free(round_trip, until)
            if taken is None:
                return GaveUp(f"no segment was free within {WAIT_SECONDS:g} s")
            segment, lease = taken
            with lease:
                found = self.sell_guarded(order, segment)
            if not isinstance(found, Refused):
                return self.sold_at(found, segment, attempts=self.store.attempts())
            left = self.units_left()
            round_trip = [other for other in round_trip if left[other] >= order.quantity]
        return self.refusal(order)

    def _first_free(self, segments: list[int], until: float) -> tuple[int, Lease] | None:
        """Return the first free segment and its lease; if none is free, wait for the first."""
        for segment in segments:
            lease = self.locks[segment].try_acquire()
            if lease is not None:
                return segment, lease
        try:
            return segments[0], self.locks[segments[0]].acquire(timeout=max(0.0, until - time.monotonic()))
        except AcquireTimeout:
            return None

"""K counters, each under a lock of ours: a buyer draws one and stays with it, sold out or not.

What is wrong with it: an order is refused as soon as the segment that it drew is exhausted, however much the others
have. That is its known fault, and the checker finds it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import LEASE_SECONDS, GaveUp, Refused
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.counted import CountedStrategy
from bench.strategies.counting_store import CountingStore
from segmented.errors import AcquireTimeout
from segmented.keys import lock_keys
from segmented.locks.lock import Lock

if TYPE_CHECKING:
    from bench.strategies.base import Answer, Guarantees
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
        return self.context.segments

    @property
    def lanes(self) -> int:
        """One a segment, as far as there are buyers for them."""
        return min(self.segments, self.context.buyers)

    def open(self, sku: str, stock: int) -> None:
        """Set the counters, and name the locks."""
        super().open(sku, stock)
        self.store = CountingStore(self.context.store)
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

"""K counters, each under one of our locks: a buyer draws one at random and uses no other.

Its fault: an order is refused as soon as its random segment is exhausted, however many units the others have. The
checker reports that.
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
        """As many as configured."""
        return self.context.segments

    @property
    def lanes(self) -> int:
        """One per segment, or fewer if there are fewer buyers."""
        return min(self.segments, self.context.buyers)

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
            found = self._sell_guarded(order, segment)
        return found if isinstance(found, Refused) else self._sold_at(found, segment, attempts=self.store.attempts())

    def clear(self) -> None:
        """Remove the counters and the locks' keys."""
        super().clear()
        for lock in self.locks:
            keys = lock_keys(lock.name)
            self.client.unlink(keys.lock, keys.fence)

"""Optimistic: WATCH the counter, read it, run the slow step, and write it back only if it is unchanged.

The first buyer to finish wins, and all others start again, including the slow step. So an order takes about as many
attempts as there are buyers. If the critical section commits, the order is stored after EXEC has succeeded: a commit
could not be taken back if EXEC failed.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from redis.exceptions import WatchError

from bench.strategies.base import GaveUp, Refused
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.counted import CountedStrategy, noted
from segmented.protocol.wire import text

if TYPE_CHECKING:
    import redis

    from bench.strategies.base import Answer, Guarantees
    from segmented.models import Order

TRIES_MAX: Final = 10_000
"""Maximum number of conflicts before a buyer gives up."""


class WatchMulti(CountedStrategy):
    """Retries."""

    name: ClassVar[str] = "watch-multi"
    summary: ClassVar[str] = "WATCH, read, the slow step, MULTI; again from the start if another was faster"
    guarantees: ClassVar[Guarantees] = replace(
        CountedStrategy.guarantees,
        never_oversells=True,
        section="unlimited",
        after_a_crash="nothing was taken before EXEC; after it, units of an order that was not stored stay sold",
    )

    def buy(self, order: Order) -> Answer:
        """Retry until no other buyer was faster."""
        until = time.monotonic() + WAIT_SECONDS
        with self.client.pipeline(transaction=True) as pipe:
            for attempts in range(1, TRIES_MAX + 1):
                try:
                    found = self._try(pipe, order)
                except WatchError:
                    if time.monotonic() >= until:
                        return GaveUp(f"{attempts} conflicts in {WAIT_SECONDS:g} s")
                    continue
                if isinstance(found, Refused):
                    return found
                return self._sold_at(found, attempts=attempts)
        return GaveUp(f"{TRIES_MAX:,} conflicts")

    def _try(self, pipe: redis.client.Pipeline, order: Order) -> float | Refused:
        pipe.watch(self.counters[0])
        left = int(text(pipe.get(self.counters[0])))
        if left < order.quantity:
            pipe.unwatch()
            return Refused(self._stock - left, order.quantity)
        granted_at = time.monotonic()
        self.context.section.run()
        pipe.multi()
        pipe.set(self.counters[0], left - order.quantity)
        if not self.context.section.commits:
            pipe.rpush(self._sold, noted(order))
        pipe.execute()
        self._stored(order)
        return granted_at

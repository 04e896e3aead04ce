"""Take first and check afterwards: DECRBY, and INCRBY to give back if the counter went below zero.

Its fault: between the two commands a smaller order finds a counter below zero although units are free for it, and is
refused. If all orders have the same quantity and none is cancelled, refusals are right: then no unit is free at the
first refusal or later.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import Refused
from bench.strategies.counted import CountedStrategy, noted

if TYPE_CHECKING:
    from bench.strategies.base import Answer, Guarantees
    from segmented.models import Order


class DecrCompensate(CountedStrategy):
    """Two commands, without a script."""

    name: ClassVar[str] = "decr-compensate"
    summary: ClassVar[str] = "DECRBY, and INCRBY back when it went below zero; the slow step outside of any lock"
    guarantees: ClassVar[Guarantees] = replace(
        CountedStrategy.guarantees,
        never_oversells=True,
        sold_out_is_exact=False,
        section="unlimited",
        after_a_crash="units of an order under way stay sold, or the counter stays below zero",
    )

    @property
    def lanes(self) -> int:
        """Every buyer can be in the slow step."""
        return self.context.buyers

    def buy(self, order: Order) -> Answer:
        """Take units and give them back if they were too many; else run the slow step and record the order."""
        self._taken += order.quantity
        if int(self.client.decrby(self.counters[0], order.quantity)) < 0:
            self._taken -= order.quantity
            refused = Refused(self._taken, order.quantity)
            self.client.incrby(self.counters[0], order.quantity)
            return refused
        granted_at = time.monotonic()
        self.context.section.run()
        if not self._stored(order):
            self.client.rpush(self._sold, noted(order))
        return self._sold_at(granted_at, attempts=0)

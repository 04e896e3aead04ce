"""Take first and ask afterwards: DECRBY, and INCRBY back when the counter went below zero.

What is wrong with it: between the two an order that asks for less finds a counter below zero, although units are free
for it, and is refused. Orders that all ask for the same number of units are refused rightly, as long as none comes
back: then no unit is free at the first refusal, and at no later one.
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
    """Two commands, and no script."""

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
        """Take, give back if it was too much; else do the slow step and note the order."""
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

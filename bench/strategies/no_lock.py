"""The control: read the counter, run the slow step, write the counter back. In between all buyers sell the same unit.

It bypasses the gate and records its orders in its own list or table, because the gate would refuse oversold orders.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import Refused
from bench.strategies.counted import CountedStrategy

if TYPE_CHECKING:
    from bench.strategies.base import Answer, Guarantees
    from segmented.models import Order


class NoLock(CountedStrategy):
    """Read, think, write. Its bound is that of a correct read-modify-write, with one order at a time."""

    name: ClassVar[str] = "no-lock"
    summary: ClassVar[str] = "read, think, write: the control, which must oversell"
    is_control: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(
        CountedStrategy.guarantees, section="unlimited", after_a_crash="what was read and not written is lost"
    )

    def buy(self, order: Order) -> Answer:
        """Read, run the slow step, store the order and commit, write."""
        available = self._read()
        if available < order.quantity:
            return Refused(self._taken, order.quantity)
        self._taken += order.quantity
        granted_at = time.monotonic()
        self.context.section.run()
        self._write(order, 0, available - order.quantity)
        return self._sold_at(granted_at, attempts=0)

"""No lock around the slow step: one script reserves the units, and their owner may take as long as the hold lasts.

It is the better choice if the slow step needs no mutual exclusion. With commits it has as many rows in the database as
segments, which is its best setting: with one row the commits would queue.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import Refused, RefusedByGate, Sold
from bench.strategies.pooled import PooledStrategy
from segmented.errors import SegmentedError
from segmented.models import Reserved, SoldOut
from segmented.orders.sale import finish_reserved

if TYPE_CHECKING:
    from bench.strategies.base import Answer, Guarantees
    from segmented.models import Order


class LockFree(PooledStrategy):
    """Reserve in one script, then the slow step outside of any lock, then confirm."""

    name: ClassVar[str] = "lock-free"
    summary: ClassVar[str] = "reserve in one script, the slow step outside of any lock, confirm"
    guarantees: ClassVar[Guarantees] = replace(
        PooledStrategy.guarantees,
        section="unlimited",
        fencing=False,
        after_a_crash="units come back when the hold lapses",
    )

    @property
    def segments(self) -> int:
        """As many as configured; they only spread the rows."""
        return self.context.segments

    @property
    def lanes(self) -> int:
        """Every buyer can be in the slow step."""
        return self.context.buyers

    def buy(self, order: Order) -> Answer:
        """Reserve, run the slow step, store the order if it commits, confirm."""
        answer = self.pool.reserve(order)
        if isinstance(answer, SoldOut):
            return Refused(answer.sequence, answer.quantity)
        if not isinstance(answer, Reserved):
            message = f"order {order.order_id!r}: {answer.describe()}"
            raise SegmentedError(message)
        granted_at = time.monotonic()
        self.context.section.run()
        if self.gate is None:
            self.pool.confirm(order.order_id)
            return Sold(granted_at, time.monotonic(), attempts=0)
        settled = finish_reserved(self.pool, self.gate, order, answer)
        return Sold(granted_at, time.monotonic(), attempts=0) if settled.state == "confirmed" else RefusedByGate()

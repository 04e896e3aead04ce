"""No lock at all around the slow step: one script takes the units, and whoever has them may take their time.

The better choice wherever the slow step needs no exclusion. It has as many rows in the database as segments, which is
its best setting: one row would make the commits queue.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import Refused, RefusedByGate, Sold
from bench.strategies.pooled import PooledStrategy
from segmented.errors import SegmentedError
from segmented.models import Reserved, SoldOut
from segmented.orders.sale import finish_reserved

if TYPE_CHECKING:
    from bench.strategies.base import Answer
    from segmented.models import Order


class LockFree(PooledStrategy):
    """Reserve in one script, then the slow step outside of any lock, then confirm."""

    name: ClassVar[str] = "lock-free"

    @property
    def segments(self) -> int:
        """As many as asked for; they only spread the rows."""
        return self.assignment.segments

    @property
    def lanes(self) -> int:
        """Every buyer can be in the slow step."""
        return self.assignment.buyers

    def buy(self, order: Order) -> Answer:
        """Reserve, spend the extra hold, store the order and commit, confirm."""
        answer = self.pool.reserve(order)
        if isinstance(answer, SoldOut):
            return Refused(answer.sequence, answer.quantity)
        if not isinstance(answer, Reserved):
            message = f"order {order.order_id!r}: {answer.describe()}"
            raise SegmentedError(message)
        granted_at = time.monotonic()
        self.linger()
        settled = finish_reserved(self.pool, self.gate, order, answer)
        return Sold(granted_at) if settled.state == "confirmed" else RefusedByGate()

"""K segments, each with its own lock: an order is processed under the lock of any free segment.

One lock for the whole stock: the same code with one segment.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import Refused, RefusedByGate, Sold
from bench.strategies.pooled import PooledStrategy
from segmented.errors import SegmentedError
from segmented.models import Settled, SoldOut
from segmented.orders.sale import take_order
from segmented.stock import Grant

if TYPE_CHECKING:
    from bench.strategies.base import Answer
    from segmented.models import Order
    from segmented.orders import Gate


class SegmentLocks(PooledStrategy):
    """A pool of K segments."""

    name: ClassVar[str] = "segment-locks"
    summary: ClassVar[str] = "K segments of a pool, each with its lock; any free one serves"

    @property
    def segments(self) -> int:
        """As many as configured."""
        return self.context.segments

    @property
    def lanes(self) -> int:
        """One per segment, or fewer if there are fewer buyers."""
        return min(self.segments, self.context.buyers)

    def buy(self, order: Order) -> Answer:
        """Wait for a segment, run the slow step, store the order if it commits, confirm."""
        if self.gate is not None:
            return self._buy_gated(order, self.gate)
        grant = self.pool.grant(order)
        if isinstance(grant, SoldOut):
            return Refused(grant.sequence, grant.quantity)
        if not isinstance(grant, Grant):
            message = f"order {order.order_id!r}: {grant.describe()}"
            raise SegmentedError(message)
        granted_at = time.monotonic()
        self.context.section.run()
        grant.confirm()
        return Sold(granted_at, time.monotonic(), grant.segment, self.store.attempts())

    def _buy_gated(self, order: Order, gate: Gate) -> Answer:
        granted_at, segment = 0.0, 0

        def body(grant: Grant) -> None:
            nonlocal granted_at, segment
            granted_at, segment = time.monotonic(), grant.segment
            self.context.section.run()

        answer = take_order(self.pool, gate, order, timeout=None, body=body)
        match answer:
            case Settled(state="confirmed"):
                return Sold(granted_at, time.monotonic(), segment, self.store.attempts())
            case Settled():
                return RefusedByGate()
            case SoldOut(quantity=quantity, sequence=sequence):
                return Refused(sequence, quantity)
        message = f"order {order.order_id!r}: {answer.describe()}"
        raise SegmentedError(message)


class GlobalLock(SegmentLocks):
    """A pool of one segment."""

    name: ClassVar[str] = "global-lock"
    summary: ClassVar[str] = "one lock for the whole stock: a pool of one segment"
    has_segments: ClassVar[bool] = False

    @property
    def segments(self) -> int:
        """One."""
        return 1

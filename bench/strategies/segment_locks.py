"""K segments, each with its own lock: the order is stored under the lock of one of them, any that is free."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.base import Refused, RefusedByGate, Sold
from bench.strategies.pooled import PooledStrategy
from segmented.errors import SegmentedError
from segmented.models import Settled, SoldOut
from segmented.orders.sale import take_order

if TYPE_CHECKING:
    from bench.strategies.base import Answer
    from segmented.models import Order
    from segmented.stock import Grant


class SegmentLocks(PooledStrategy):
    """A pool of K segments."""

    name: ClassVar[str] = "segment-locks"

    @property
    def segments(self) -> int:
        """As many as asked for."""
        return self.assignment.segments

    @property
    def lanes(self) -> int:
        """One a segment, as far as there are buyers for them."""
        return min(self.segments, self.assignment.buyers)

    def buy(self, order: Order) -> Answer:
        """Wait for a segment, spend the extra hold, store the order and commit, confirm."""
        granted_at = 0.0

        def body(_: Grant) -> None:
            nonlocal granted_at
            granted_at = time.monotonic()
            self.linger()

        answer = take_order(self.pool, self.gate, order, timeout=None, body=body)
        match answer:
            case Settled(state="confirmed"):
                return Sold(granted_at)
            case Settled():
                return RefusedByGate()
            case SoldOut(quantity=quantity, sequence=sequence):
                return Refused(sequence, quantity)
        message = f"order {order.order_id!r}: {answer.describe()}"
        raise SegmentedError(message)

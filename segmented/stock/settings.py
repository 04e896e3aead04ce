"""What a pool is told once: its sku and how long leases and holds live; and the checks of what callers ask."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from segmented import operations as op
from segmented.errors import InvalidInput
from segmented.locks.durations import milliseconds
from segmented.models import EPOCH_MAX, SEGMENT_COUNT_MAX, STOCK_MAX, Order

DEFAULT_TTL: Final = 10.0
DEFAULT_HOLD: Final = 600.0


class PoolSettings:
    """Builds the operations of one pool; shared by the threaded and the asyncio shell."""

    def __init__(self, sku: str, *, ttl: float, hold: float) -> None:
        """Check once what every grant uses."""
        if not sku:
            message = "a pool needs a sku"
            raise InvalidInput(message)
        self.sku = sku
        self.ttl_ms = milliseconds(ttl, "ttl")
        self.hold_ms = milliseconds(hold, "hold")
        if self.hold_ms < self.ttl_ms:
            message = f"hold of {hold:g} s is shorter than ttl of {ttl:g} s: the units would lapse under a living lease"
            raise InvalidInput(message)

    def open(self, stock: int, segments: int, *, gated: bool, epoch: int) -> op.OpenPool:
        """Check stock and segment count."""
        for what, value in (("stock", stock), ("segment count", segments), ("epoch", epoch)):
            if isinstance(value, bool) or not isinstance(value, int):
                message = f"{what} {value!r} of {self.sku!r} is not a whole number"
                raise InvalidInput(message)
        if not 1 <= epoch <= EPOCH_MAX:
            message = f"epoch {epoch} of {self.sku!r} must be between 1 and {EPOCH_MAX:,}"
            raise InvalidInput(message)
        if not 1 <= stock <= STOCK_MAX:
            message = f"stock {stock} of {self.sku!r} must be between 1 and {STOCK_MAX:,}"
            raise InvalidInput(message)
        if not 1 <= segments <= SEGMENT_COUNT_MAX:
            message = f"segment count {segments} of {self.sku!r} must be between 1 and {SEGMENT_COUNT_MAX:,}"
            raise InvalidInput(message)
        return op.OpenPool(self.sku, stock, segments, gated, epoch)

    def grant(self, order: Order, *, holder_id: str | None, keep_refusal: bool) -> op.Grant:
        """Ask for units and a segment. A caller's holder id counts for this order alone, and may be used for others."""
        own = uuid4().hex if holder_id is None else f"{holder_id}/{order.order_id}"
        return op.Grant(self.sku, order, own, self.ttl_ms, self.hold_ms, keep_refusal)


def as_order(order: Order | str, quantity: int) -> Order:
    """Accept an order, or an order id with a quantity."""
    return order if isinstance(order, Order) else Order(order, quantity)

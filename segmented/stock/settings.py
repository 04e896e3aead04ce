"""What a pool is told once: its sku and how long leases and holds live; and the checks of what callers ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from segmented import operations as op
from segmented.errors import InvalidInput
from segmented.locks.durations import milliseconds
from segmented.models import (
    EPOCH_MAX,
    QUANTITY_MAX,
    SEGMENT_COUNT_MAX,
    SKU_BYTES_MAX,
    STOCK_MAX,
    Order,
    check_id,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmented.stock.plans import Verdict

VERDICTS: Final = ("confirm", "release", "wait")
DEFAULT_TTL: Final = 10.0
DEFAULT_HOLD: Final = 600.0


class PoolSettings:
    """Builds the operations of one pool; shared by the threaded and the asyncio shell."""

    def __init__(self, sku: str, *, ttl: float, hold: float) -> None:
        """Check once what every grant uses."""
        check_id(sku, "sku", bytes_max=SKU_BYTES_MAX)
        self.sku = sku
        self.ttl_ms = milliseconds(ttl, "ttl")
        self.hold_ms = milliseconds(hold, "hold")
        if self.hold_ms < self.ttl_ms:
            message = f"hold of {hold:g} s is shorter than ttl of {ttl:g} s: the units would lapse under a living lease"
            raise InvalidInput(message)

    def open(self, stock: int, segments: int, *, gated: bool, epoch: int, customer_limit: int | None) -> op.OpenPool:
        """Check stock, segment count and limit."""
        self._check_number(epoch, "epoch", 1, EPOCH_MAX)
        self._check_number(stock, "stock", 1, STOCK_MAX)
        self._check_number(segments, "segment count", 1, SEGMENT_COUNT_MAX)
        if customer_limit is not None:
            self._check_number(customer_limit, "limit per customer", 1, QUANTITY_MAX)
        return op.OpenPool(self.sku, stock, segments, gated, epoch, customer_limit)

    def restock(self, units: int, restock_id: str) -> op.Restock:
        """Check units and id."""
        check_id(restock_id, "restock id")
        self._check_number(units, "units to restock", 1, STOCK_MAX)
        return op.Restock(self.sku, restock_id, units)

    def withdraw(self, units: int, withdraw_id: str) -> op.Withdraw:
        """Check units and id."""
        check_id(withdraw_id, "withdrawal id")
        self._check_number(units, "units to withdraw", 1, STOCK_MAX)
        return op.Withdraw(self.sku, withdraw_id, units)

    def resize(self, segments: int) -> op.Resize:
        """Check the segment count."""
        self._check_number(segments, "segment count", 1, SEGMENT_COUNT_MAX)
        return op.Resize(self.sku, segments)

    def _check_number(self, value: int, what: str, least: int, most: int) -> None:
        if type(value) is not int:
            message = f"{what} {value!r} of {self.sku!r} is not a whole number"
            raise InvalidInput(message)
        if not least <= value <= most:
            message = f"{what} {value} of {self.sku!r} must be between {least:,} and {most:,}"
            raise InvalidInput(message)

    def grant(self, order: Order, *, holder_id: str | None, keep_refusal: bool, partial: bool) -> op.Grant:
        """Ask for units and a segment. A caller's holder id counts for this order alone, and may be used for others."""
        if holder_id is None:
            own = uuid4().hex
        else:
            check_id(holder_id, "holder id")
            own = f"{holder_id}/{order.order_id}"
        return op.Grant(self.sku, order, own, self.ttl_ms, self.hold_ms, keep_refusal, partial)


def as_order(order: Order | str, quantity: int) -> Order:
    """Accept an order, or an order id with a quantity."""
    return order if isinstance(order, Order) else Order(order, quantity)


def checked_verdicts(verdicts: Mapping[str, Verdict]) -> Mapping[str, Verdict]:
    """Return the verdicts of a resolver. Raises InvalidInput for one that is none, before anything is changed."""
    for order_id, verdict in verdicts.items():
        if verdict not in VERDICTS:
            message = f"the resolver said {verdict!r} of order {order_id!r}; it may say {', '.join(VERDICTS)}"
            raise InvalidInput(message)
    return verdicts

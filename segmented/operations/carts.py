"""Operations on carts: the record of one decision, in the pool of the cart's first sku; and the hold of a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from segmented.models import Cart, CartRecord, LineRefusal, OrderState
from segmented.operations.base import Operation

CartMove = Literal["reserved", "refused", "cancelled", "expired", "confirmed"]
"""A state that a cart may be moved to."""


@dataclass(frozen=True, slots=True)
class OpenCart(Operation[CartRecord]):
    """Begin a cart that lapses `hold_ms` from now; a known one is only read. Other content raises CartMismatch."""

    cart: Cart
    hold_ms: int


@dataclass(frozen=True, slots=True)
class ReadCart(Operation[CartRecord]):
    """Read a cart. Raises CartUnknown."""

    home: str
    cart_id: str


@dataclass(frozen=True, slots=True)
class DecideCart(Operation[CartRecord]):
    """Move a cart on, if it may still move there; else nothing changes. Whoever comes first wins.

    An open one may become reserved (expired instead, when it has lapsed), refused, cancelled or expired; a reserved one
    confirmed, cancelled or expired. From a final state nothing leads away.
    """

    home: str
    cart_id: str
    state: CartMove
    refusal: LineRefusal | None = None


@dataclass(frozen=True, slots=True)
class FinishCart(Operation[bool]):
    """Note that a final decision is carried out in every line's pool; False when that was known."""

    home: str
    cart_id: str


@dataclass(frozen=True, slots=True)
class ListDueCarts(Operation[tuple[CartRecord, ...]]):
    """Read up to `limit` carts that have lapsed, or are decided but not finished; longest ago first, after `skip`."""

    home: str
    limit: int
    skip: int = 0


@dataclass(frozen=True, slots=True)
class PinOrder(Operation[OrderState]):
    """Keep a reservation until it is confirmed or cancelled: its hold lapses no more. Returns the order's state."""

    sku: str
    order_id: str

"""Operations on carts: the record of one decision, in the pool of the cart's first sku; and the hold of a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from segmented.models import Cart, CartRecord, InspectedCart, LineRefusal, OrderState, UnfinishedCarts
from segmented.protocol.base import Operation, Release

if TYPE_CHECKING:
    from segmented.models.pools import ScannedCarts

CartMove = Literal["reserved", "refused", "cancelled", "expired", "confirmed"]
"""A state that a cart may be moved to."""


@dataclass(frozen=True, slots=True)
class OpenCart(Operation[CartRecord]):
    """Open a cart that expires `hold_ms` from now, or read a known one. Other content raises CartMismatch."""

    cart: Cart
    hold_ms: int


@dataclass(frozen=True, slots=True)
class ReadCart(Operation[CartRecord]):
    """Read a cart. Raises CartUnknown."""

    home: str
    cart_id: str


@dataclass(frozen=True, slots=True)
class DecideCart(Release[CartRecord]):
    """Change a cart's state, if the change is still allowed. The first caller wins.

    An open cart may become reserved (expired instead, if its hold has ended), refused, cancelled or expired; a reserved
    one confirmed, cancelled or expired. A final state never changes. Raises CartGated if the home is gated, unless the
    change is `stored`; then an open cart may become confirmed, too.
    """

    home: str
    cart_id: str
    state: CartMove
    refusal: LineRefusal | None = None
    stored: bool = False
    """The order database of a gated home has stored, or voided, every line."""


@dataclass(frozen=True, slots=True)
class FinishCart(Release[bool]):
    """Note that a final decision is carried out in every line's pool; False if that was noted before."""

    home: str
    cart_id: str


@dataclass(frozen=True, slots=True)
class ListDueCarts(Operation[tuple[CartRecord, ...]]):
    """Read up to `limit` carts that have expired, or are decided but not finished; oldest first, after `skip`."""

    home: str
    limit: int
    skip: int = 0


@dataclass(frozen=True, slots=True)
class ListCarts(Operation[UnfinishedCarts]):
    """Read up to `limit` unfinished carts, due or not, longest due first, and count all of them."""

    home: str
    limit: int


@dataclass(frozen=True, slots=True)
class PinOrder(Operation[OrderState]):
    """Keep a reservation until it is confirmed or cancelled: its hold no longer expires. Returns the order's state."""

    sku: str
    order_id: str
    home: str
    """Home of its cart, noted in the record: a process that finds the order pinned reads the decision there."""


@dataclass(frozen=True, slots=True)
class ScanCarts(Operation[tuple[int, tuple[str, ...]]]):
    """Read some cart ids of a key and the next cursor (0 at the end); an id may appear twice while the sale runs."""

    home: str
    key: ScannedCarts
    cursor: int


@dataclass(frozen=True, slots=True)
class InspectCarts(Operation[tuple[InspectedCart, ...]]):
    """Read the raw records of up to 1,000 carts in one step. Raises PoolMissing."""

    home: str
    cart_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScanPinned(Operation[tuple[int, tuple[str, ...]]]):
    """Read some ids of orders that carts have pinned, and the next cursor (0 at the end); an id may appear twice."""

    sku: str
    cursor: int

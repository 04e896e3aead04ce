"""Carts: several skus under one id, all or nothing; and the answers to who reserves or decides one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from segmented.errors import InvalidInput
from segmented.models.ids import QUANTITY_MAX, SKU_BYTES_MAX, check_id, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.errors import SegmentedError
    from segmented.models.orders import Refusal

CartState = Literal["open", "reserved", "confirmed", "cancelled", "expired", "refused"]
CartLine = tuple[str, int]
"""(sku, units of it)."""
CART_ID_BYTES_MAX: Final = 240
CART_SKUS_MAX: Final = 100
"""Skus of one cart: each is a round trip."""
PINNED_UNTIL_MS: Final = 253_402_300_799_000
"""The end of a hold that does not lapse: the last second of the year 9999."""
_DIGEST_LENGTH: Final = 12


@dataclass(frozen=True, slots=True, init=False)
class Cart:
    """What a buyer asks for in several pools at once, under an id of its own.

    `lines` come as (sku, quantity) in any order; lines of one sku are summed, and kept sorted by sku.
    """

    cart_id: str
    lines: tuple[CartLine, ...]
    customer_id: str | None

    def __init__(self, cart_id: str, lines: Iterable[CartLine], customer_id: str | None = None) -> None:
        """Sum and sort the lines. Raises InvalidInput for what no pool can hold."""
        check_id(cart_id, "cart id", bytes_max=CART_ID_BYTES_MAX)
        if customer_id is not None:
            check_id(customer_id, "customer id")
        object.__setattr__(self, "cart_id", cart_id)
        object.__setattr__(self, "lines", _summed(cart_id, lines))
        object.__setattr__(self, "customer_id", customer_id)

    @property
    def home(self) -> str:
        """The sku whose pool keeps the cart's record: the first one."""
        return self.lines[0][0]

    @property
    def content(self) -> str:
        """What must be the same when the id comes again."""
        found = [self.customer_id, *map(list, self.lines)]
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))

    @property
    def order_id(self) -> str:
        """The id of its orders, one in each sku's pool.

        It has a digest of the content, so that no other order and no other cart of the same id is taken for this one.
        """
        digest = hashlib.sha256(self.content.encode()).hexdigest()[:_DIGEST_LENGTH]
        return f"{self.cart_id}~{digest}"


def cart_of(cart_id: str, content: str) -> Cart:
    """Return the cart of an id and the content that was kept under it."""
    customer_id, *lines = json.loads(content)
    return Cart(cart_id, ((sku, quantity) for sku, quantity in lines), customer_id)


def _summed(cart_id: str, lines: Iterable[CartLine]) -> tuple[CartLine, ...]:
    sums: dict[str, int] = {}
    try:
        found = iter(lines)
    except TypeError:
        message = f"lines {shortened(lines)} of cart {cart_id!r} are not pairs of sku and quantity"
        raise InvalidInput(message) from None
    for line in found:
        try:
            sku, quantity = line
        except (TypeError, ValueError):
            message = f"line {shortened(line)} of cart {cart_id!r} is not a pair of sku and quantity"
            raise InvalidInput(message) from None
        check_id(sku, f"sku in cart {cart_id!r}", bytes_max=SKU_BYTES_MAX)
        if type(quantity) is not int:
            message = f"quantity {shortened(quantity)} of {sku!r} in cart {cart_id!r} is not a whole number"
            raise InvalidInput(message)
        sums[sku] = sums.get(sku, 0) + quantity
        if quantity < 1 or sums[sku] > QUANTITY_MAX:
            what = f"{shortened(quantity)} of {sku!r} in cart {cart_id!r}, {shortened(sums[sku])} in all,"
            message = f"quantity {what} must be between 1 and {QUANTITY_MAX:,}"
            raise InvalidInput(message)
        if len(sums) > CART_SKUS_MAX:
            message = f"cart {cart_id!r} has more than {CART_SKUS_MAX} skus"
            raise InvalidInput(message)
    if not sums:
        message = f"cart {cart_id!r} has no lines"
        raise InvalidInput(message)
    return tuple(sorted(sums.items()))


@dataclass(frozen=True, slots=True)
class LineRefusal:
    """The line that refused a cart, and what its pool answered."""

    sku: str
    answer: Refusal


@dataclass(frozen=True, slots=True)
class CartRecord:
    """What the pool of a cart's first sku keeps of it: its one decision."""

    cart: Cart
    state: CartState
    left_ms: int
    """Server milliseconds until the cart lapses, at least 0; how long its lines are held at the least."""
    is_finished: bool
    """Is the decision carried out in every line's pool?"""
    refusal: LineRefusal | None
    replay: bool
    """True when this call changed nothing."""


@dataclass(frozen=True, slots=True)
class UnfinishedCart:
    """A cart that holds units, or whose decision is not carried out yet in every line's pool."""

    record: CartRecord
    due_in_ms: int
    """Server milliseconds until anybody may finish it; 0 or less: it is due, and has been for so long."""

    @property
    def is_due(self) -> bool:
        """Has its hold lapsed, or is it decided, so that a sweep finishes it?"""
        return self.due_in_ms <= 0


@dataclass(frozen=True, slots=True)
class UnfinishedCarts:
    """Carts of one home that are not finished, longest due first, all read in one step."""

    carts: tuple[UnfinishedCart, ...]
    count: int
    """How many there are; more than `carts` has where a limit was reached."""
    due_count: int
    """How many of them are due."""


@dataclass(frozen=True, slots=True)
class CartReserved:
    """Every line's units are taken, until the cart's hold lapses."""

    cart_id: str
    home: str
    order_id: str
    lines: tuple[CartLine, ...]
    replay: bool


@dataclass(frozen=True, slots=True)
class CartRefused:
    """The pool of `sku` refused its line, so nothing is taken. Final: another attempt needs another cart id."""

    cart_id: str
    sku: str
    refusal: Refusal
    replay: bool

    def describe(self) -> str:
        """Say it in words."""
        return f"{self.sku}: {self.refusal.describe()}"


@dataclass(frozen=True, slots=True)
class CartSettled:
    """The cart's fate: what this call decided, or, as a replay, what had already happened."""

    cart_id: str
    state: CartState
    replay: bool
    is_finished: bool
    """False while some line's pool has not answered: it follows, by a repeat or by `finish`."""


CartAnswer = CartReserved | CartRefused | CartSettled
"""What a cart is answered that wants to be reserved."""


@dataclass(frozen=True, slots=True)
class CartSweep:
    """What one sweep did: the carts it finished, and those it could not, each with why."""

    finished: tuple[CartSettled, ...]
    failed: tuple[tuple[str, SegmentedError], ...]

"""Carts: several skus under one id, all or nothing; and the answers to reserving or deciding one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from segmented.errors import CartMismatch, InvalidInput, SegmentedError
from segmented.models.ids import CART_DIGEST_LENGTH, QUANTITY_MAX, SKU_BYTES_MAX, checked_id, plural, shortened
from segmented.models.orders import Refusal, customer_said
from segmented.models.truth import Done, NotDone

CartState = Literal["open", "reserved", "confirmed", "cancelled", "expired", "refused"]
CartFate = Literal["confirmed", "cancelled", "expired"]
"""How an order database decides a cart: all its lines are stored, or all are void."""
CartLine = tuple[str, int]
"""(sku, units of it)."""
CART_ID_BYTES_MAX: Final = 240
CART_SKUS_MAX: Final = 100
"""Maximum number of skus in one cart: each takes a round trip."""
SKUS_SHOWN: Final = 3
"""Maximum number of lines that an error names."""
PINNED_UNTIL_MS: Final = 253_402_300_799_000
"""The end of a hold that does not expire: the last second of the year 9999."""


@dataclass(frozen=True, slots=True, init=False)
class Cart:
    """A buyer's order of several skus together, under an id of its own.

    `lines` are (sku, quantity) in any order; lines of the same sku are summed, and kept sorted by sku.
    """

    cart_id: str
    lines: tuple[CartLine, ...]
    customer_id: str | None

    def __init__(self, cart_id: str, lines: Iterable[CartLine], customer_id: str | None = None) -> None:
        """Sum and sort the lines. Raises InvalidInput for values that no pool accepts."""
        cart_id = checked_id(cart_id, "cart id", bytes_max=CART_ID_BYTES_MAX)
        if customer_id is not None:
            customer_id = checked_id(customer_id, "customer id")
        object.__setattr__(self, "cart_id", cart_id)
        object.__setattr__(self, "lines", _summed(cart_id, lines))
        object.__setattr__(self, "customer_id", customer_id)

    @property
    def home(self) -> str:
        """The sku whose pool keeps the cart's record: the first one."""
        return self.lines[0][0]

    @property
    def content(self) -> str:
        """The content that must be the same when the id is used again."""
        found = [self.customer_id, *map(list, self.lines)]
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))

    @property
    def order_id(self) -> str:
        """The id of its orders, one in each sku's pool.

        It includes a digest of the content, so that no other order, and no other cart of the same id, is mistaken for
        it.
        """
        digest = hashlib.sha256(self.content.encode()).hexdigest()[:CART_DIGEST_LENGTH]
        return f"{self.cart_id}~{digest}"


def cart_of(cart_id: str, content: str) -> Cart:
    """Return the cart of an id and its stored content."""
    customer_id, *lines = json.loads(content)
    return Cart(cart_id, ((sku, quantity) for sku, quantity in lines), customer_id)


def cart_mismatch(cart: Cart, stored: Cart) -> CartMismatch:
    """Return the error for a cart whose id is stored with other content: what differs, with both values."""
    found = []
    if stored.customer_id != cart.customer_id:
        found.append(customer_said(stored.customer_id, cart.customer_id))
    before, now = dict(stored.lines), dict(cart.lines)
    skus = [sku for sku in sorted({*before, *now}) if before.get(sku) != now.get(sku)]
    found += [
        f"quantity {before.get(sku, 0)} of {sku!r} is stored, {now.get(sku, 0)} was given" for sku in skus[:SKUS_SHOWN]
    ]
    if len(skus) > SKUS_SHOWN:
        more = len(skus) - SKUS_SHOWN
        found.append(f"{more} more {plural(more, 'line', 'differs')}")
    return CartMismatch(cart.home, cart.cart_id, "; ".join(found))


def _summed(cart_id: str, lines: Iterable[CartLine]) -> tuple[CartLine, ...]:
    sums: dict[str, int] = {}
    try:
        found = iter(lines)
    except TypeError:
        raise InvalidInput(f"lines {shortened(lines)} of cart {cart_id!r} are not pairs of sku and quantity") from None
    for line in found:
        try:
            sku, quantity = line
        except (TypeError, ValueError):
            message = f"line {shortened(line)} of cart {cart_id!r} is not a pair of sku and quantity"
            raise InvalidInput(message) from None
        sku = checked_id(sku, f"sku in cart {cart_id!r}", bytes_max=SKU_BYTES_MAX)
        if type(quantity) is not int:
            raise InvalidInput(f"quantity {shortened(quantity)} of {sku!r} in cart {cart_id!r} is not a whole number")
        sums[sku] = sums.get(sku, 0) + quantity
        if quantity < 1 or sums[sku] > QUANTITY_MAX:
            what = f"{shortened(quantity)} of {sku!r} in cart {cart_id!r}, {shortened(sums[sku])} in all,"
            raise InvalidInput(f"quantity {what} must be between 1 and {QUANTITY_MAX:,}")
        if len(sums) > CART_SKUS_MAX:
            raise InvalidInput(f"cart {cart_id!r} has more than {CART_SKUS_MAX} skus")
    if not sums:
        raise InvalidInput(f"cart {cart_id!r} has no lines")
    return tuple(sorted(sums.items()))


@dataclass(frozen=True, slots=True)
class LineRefusal:
    """The line that refused a cart, and its pool's answer."""

    sku: str
    answer: Refusal


@dataclass(frozen=True, slots=True)
class CartRecord:
    """The cart's record in the pool of its first sku: its one decision."""

    cart: Cart
    state: CartState
    left_ms: int
    """Server milliseconds until the cart expires, at least 0; its lines are held at least that long."""
    is_finished: bool
    """Whether the decision is carried out in every line's pool."""
    refusal: LineRefusal | None
    replay: bool
    """True if this call changed nothing."""


@dataclass(frozen=True, slots=True)
class UnfinishedCart:
    """A cart that holds units, or whose decision is not carried out yet in every line's pool."""

    record: CartRecord
    due_in_ms: int
    """Server milliseconds until any process may finish it; if 0 or less, it has been due for that long."""

    @property
    def is_due(self) -> bool:
        """Return whether its hold has expired or it is decided, so that a sweep finishes it."""
        return self.due_in_ms <= 0


@dataclass(frozen=True, slots=True)
class UnfinishedCarts:
    """Unfinished carts of one home, longest due first, all read in one step."""

    carts: tuple[UnfinishedCart, ...]
    count: int
    """Total number; more than in `carts` if the limit was reached."""
    due_count: int
    """How many of them are due."""


@dataclass(frozen=True, slots=True)
class CartReserved(Done):
    """Every line's units are reserved until the cart's hold expires."""

    cart_id: str
    home: str
    order_id: str
    lines: tuple[CartLine, ...]
    replay: bool


@dataclass(frozen=True, slots=True)
class CartRefused(NotDone):
    """The pool of `sku` refused its line, so nothing is reserved. Final: another attempt needs another cart id."""

    cart_id: str
    sku: str
    refusal: Refusal
    replay: bool

    def describe(self) -> str:
        """Return the refusal in words."""
        return f"{self.sku}: {self.refusal.describe()}"


@dataclass(frozen=True, slots=True)
class _CartEnd:
    cart_id: str
    state: CartState
    replay: bool
    is_finished: bool
    """False while some line's pool has not answered; a repeat or `finish` completes it."""


@dataclass(frozen=True, slots=True)
class CartDecided(_CartEnd, NotDone):
    """The cart was decided before or expired, so nothing is reserved: its final state, false in a condition."""


@dataclass(frozen=True, slots=True)
class CartSettled(_CartEnd, Done):
    """The cart's final state: decided by this call or, as a replay, before. True in a condition."""

    def describe(self) -> str:
        """Return the answer in words."""
        return f"cart {self.cart_id!r} is already {self.state}"


CartAnswer = CartReserved | CartRefused | CartDecided
"""The answer to reserving a cart."""


@dataclass(frozen=True, slots=True)
class CartSweep:
    """The result of one sweep: the carts it finished, and those it could not, each with the reason."""

    finished: tuple[CartSettled, ...]
    failed: tuple[tuple[str, SegmentedError], ...]

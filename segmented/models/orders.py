"""Orders and carts, and the answers to requests for units. A refusal in a `with` statement raises NotGranted.

An answer is true in a condition if what was asked is done, and false if it is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, NoReturn, TypeVar

from segmented.errors import (
    AlreadySettled,
    CartMismatch,
    GrantSuperseded,
    InvalidInput,
    NotGranted,
    OrderMismatch,
    SegmentedError,
)
from segmented.models.ids import (
    CART_DIGEST_LENGTH,
    QUANTITY_MAX,
    SKU_BYTES_MAX,
    checked_id,
    is_plain_id,
    plural,
    shortened,
)
from segmented.values import light_dataclass


class Done:
    """An answer that is true."""

    __slots__ = ()

    def __bool__(self) -> Literal[True]:
        """Return True: what was asked is done."""
        return True


class NotDone:
    """An answer that is false."""

    __slots__ = ()

    def __bool__(self) -> Literal[False]:
        """Return False: nothing is done."""
        return False


OrderState = Literal["reserved", "confirmed", "cancelled", "expired", "refused", "returned"]
Part = tuple[int, int]
"""(segment, units taken from it)."""


@dataclass(frozen=True, slots=True)
class Order:
    """A buyer's request: `quantity` units under an id that is unique in its pool."""

    order_id: str
    quantity: int = 1
    customer_id: str | None = None

    def __post_init__(self) -> None:
        if type(self.quantity) is not int:
            message = f"quantity {shortened(self.quantity)} of order {shortened(self.order_id)} is not a whole number"
            raise InvalidInput(message)
        if not 1 <= self.quantity <= QUANTITY_MAX:
            what = f"quantity {shortened(self.quantity)} of order {shortened(self.order_id)}"
            raise InvalidInput(f"{what} must be between 1 and {QUANTITY_MAX:,}")
        if type(self.order_id) is not str or not is_plain_id(self.order_id):
            object.__setattr__(self, "order_id", checked_id(self.order_id, "order id"))
        if self.customer_id is not None:
            object.__setattr__(self, "customer_id", checked_id(self.customer_id, "customer id"))


class NothingGranted(NotDone):
    """A refusal: the body of a `with` statement does not run."""

    __slots__ = ()
    order_id: str

    def describe(self) -> str:
        """Return the answer in words."""
        raise NotImplementedError

    def __enter__(self) -> NoReturn:
        """Raise NotGranted."""
        raise NotGranted(self)

    def __exit__(self, *_: object) -> None:
        """Never reached."""


@dataclass(frozen=True, slots=True)
class Granted(Done):
    """Units are taken and the lock of `segment` is held, as long as the lease lives."""

    order_id: str
    quantity: int
    segment: int
    parts: tuple[Part, ...]
    holder_id: str
    fencing_token: int
    epoch: int
    sequence: int
    free_in_ms: int | None
    """Milliseconds until some segment may be free (0: one is free now); None if unknown."""
    replay: bool
    """True if nothing was deducted: a repeat, or a second delivery after the first holder's lease expired."""


@light_dataclass(frozen=True, slots=True)
class Reserved(Done):
    """Units are reserved until the hold expires; no lock is held."""

    order_id: str
    quantity: int
    segment: int
    parts: tuple[Part, ...]
    epoch: int
    sequence: int
    replay: bool
    hold_until_ms: int = field(default=0, compare=False)
    """Server time at which the hold ends, unless the order is confirmed, or reserved again, before."""


@light_dataclass(frozen=True, slots=True)
class _End:
    order_id: str
    state: OrderState
    quantity: int
    segment: int
    fencing_token: int | None
    sequence: int
    replay: bool


@light_dataclass(frozen=True, slots=True)
class Settled(_End, Done):
    """The order's final state: set by this call or, as a replay, before. True in a condition.

    `quantity` is what a sold order has now: a replay after a return has the units that the order keeps.
    """

    def describe(self) -> str:
        """Return the answer in words."""
        return f"order {self.order_id!r} is already {self.state}"


def ended_as(state: OrderState, quantity: int, segment: int | None) -> OrderState:
    """Return the state of a record: a cancelled one of a segment without units was sold, and all of it returned."""
    return "returned" if state == "cancelled" and quantity == 0 and segment is not None and segment >= 0 else state


@dataclass(frozen=True, slots=True)
class Returned(Done):
    """`units` of a sold order are free again under this return id: now, or earlier as a replay."""

    order_id: str
    return_id: str
    units: int
    quantity: int
    """Units that the order keeps; with none it is no longer sold, and its state is "returned"."""
    sequence: int
    replay: bool


@light_dataclass(frozen=True, slots=True)
class Decided(_End, NothingGranted):
    """The order was decided before, so it gets no units now: a refusal, with the order's final state."""

    def describe(self) -> str:
        """Return the answer in words."""
        return f"already {self.state}"


def decided_as(end: Settled | Decided) -> Decided:
    """Return an order's final state as the refusal that a later request for units gets."""
    return Decided(end.order_id, end.state, end.quantity, end.segment, end.fencing_token, end.sequence, end.replay)


def fate_of(end: Settled | Decided) -> Settled | Decided:
    """Return an order's final state as its buyer's answer: true if it is sold, otherwise false."""
    if end.state == "confirmed":
        return Settled(end.order_id, end.state, end.quantity, end.segment, end.fencing_token, end.sequence, end.replay)
    return decided_as(end)


@dataclass(frozen=True, slots=True)
class SoldOut(NothingGranted):
    """Fewer units are free than requested, at `sequence`. `reserved` units are on hold and may come back.

    Both numbers are the pool's at the end of the refusing call, in which other orders may have taken units. For a
    `replay` they are the pool's current numbers, and `sequence` is the time of the refusal.
    """

    order_id: str
    quantity: int
    available: int
    reserved: int
    sequence: int
    replay: bool = False
    by_mark: bool = False
    """True if this process refused it locally, because of another order's recent refusal."""
    age_ms: int = 0
    """Age of that other answer when this one was made, by the local clock, rounded up; 0 for one from the server."""
    epoch: int = 1
    """The pool's epoch: if it is later than the one in which the order was placed first, ask the order database."""
    free_in_ms: int | None = field(default=None, compare=False)
    """Milliseconds until the first hold ends, when units may come back; 0: some have ended, and the order database
    decides their orders. None if nothing is on hold, or if it is unknown.
    """

    def describe(self) -> str:
        """Return the answer in words."""
        free = f"{self.available} {plural(self.available, 'unit')} free"
        again = "" if self.free_in_ms is None else f"; try again in {self.free_in_ms / 1_000:.1f} s"
        return f"sold out ({free}, {self.reserved} on hold, {self.quantity} asked for{again})"


@dataclass(frozen=True, slots=True)
class Busy(NothingGranted):
    """No segment is free, or another holder is processing this order; retry in `free_in_ms`, or when one is freed."""

    order_id: str
    sequence: int
    free_in_ms: int | None
    is_in_hand: bool = False
    """True if another holder's lease on this order is live: a second delivery. Segments may be free."""
    ahead: int = 0
    """How many other processes are before the caller's in the line of those that wait; 0 if it has no place there."""

    def describe(self) -> str:
        """Return the answer in words."""
        return "another holder works on it" if self.is_in_hand else "no segment was free before the deadline"


@dataclass(frozen=True, slots=True)
class Closed(NothingGranted):
    """The pool takes no new orders."""

    order_id: str

    def describe(self) -> str:
        """Return the answer in words."""
        return "the sale is closed"


@dataclass(frozen=True, slots=True)
class LimitReached(NothingGranted):
    """The customer may have `limit` units of this pool, and has `taken` of them, reserved or confirmed."""

    order_id: str
    quantity: int
    customer_id: str
    limit: int
    taken: int

    def describe(self) -> str:
        """Return the answer in words."""
        limit = f"the limit of {self.limit} {plural(self.limit, 'unit')}"
        return f"customer {self.customer_id!r} has {self.taken} of {limit}, and asks for {self.quantity} more"


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another holder has this order now; the caller's lease expired. Nothing changed."""

    order_id: str
    fencing_token: int


Refusal = SoldOut | Busy | Decided | Closed | LimitReached
"""An answer that grants nothing: false in a condition."""
Taken = Reserved | Refusal
"""The answer to a reservation."""


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """An order's record in the pool."""

    order_id: str
    state: OrderState
    quantity: int
    segment: int
    parts: tuple[Part, ...]
    holder_id: str | None
    fencing_token: int | None
    hold_until_ms: int | None
    """Server time at which its hold expires; None if it has none, or if it was not read."""
    customer_id: str | None
    sequence: int
    """Sequence number of the last change; for a refusal, the one at which it was decided."""
    asked: int
    """Units asked for: more than `quantity` if it took fewer."""
    cart_home: str | None = None
    """For an order pinned by a cart, the sku whose pool keeps the cart's record."""

    @property
    def order(self) -> Order:
        """The order as it was asked for."""
        return Order(self.order_id, self.asked, self.customer_id)

    def is_of(self, order: Order) -> bool:
        """Return whether the record has the content of `order`; the same id with other content is an error."""
        return (self.asked, self.customer_id) == (order.quantity, order.customer_id)


def took_segment(answer: object) -> bool:
    """Return whether this attempt of a grant took a segment, and not an earlier one of the same call."""
    return isinstance(answer, Granted) and not answer.replay


def check_content(order: Order, quantity: int | None, customer_id: str | None) -> None:
    """Raise OrderMismatch if the order's id is stored with another quantity or customer."""
    if (quantity, customer_id) != (order.quantity, order.customer_id):
        raise mismatch_of(order, quantity, customer_id)


ANOTHER: Final = "\n"
"""Stands for a stored customer who is not the given one; no customer id has a newline."""


def mismatch_of(order: Order, quantity: int | None, customer_id: str | None) -> OrderMismatch:
    """Return the error for an order whose id is stored with other content: it names each field that differs."""
    found = []
    if quantity != order.quantity:
        found.append(f"quantity {quantity} is stored, {order.quantity} was given")
    if customer_id != order.customer_id:
        found.append(customer_said(customer_id, order.customer_id))
    return OrderMismatch(order.order_id, "; ".join(found))


def customer_said(stored: str | None, given: str | None) -> str:
    """Return the difference between two customers as text.

    The stored customer is not named: whoever may try order ids would learn whose they are.
    """
    before = "no customer" if stored is None else "a customer" if given is None else "another customer"
    return f"{before} is stored, {'none' if given is None else given} was given"


# --- Carts: several skus under one id, all or nothing. ---

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


# --- the rule of confirm and cancel: what was not done as asked raises; the operations answer, the methods ask here ---
#
# A repeat is done as asked: it changes nothing and its answer has `replay=True`. So is the cancel of an order whose
# units are back already, whichever state it is in.

EndT = TypeVar("EndT", Settled, CartSettled)


def as_confirmed(answer: EndT) -> EndT:
    """Return the answer of a confirm. Raises AlreadySettled if the order, or cart, has ended otherwise."""
    if answer.state != "confirmed":
        raise AlreadySettled(answer)
    return answer


def as_cancelled(answer: EndT | Superseded) -> EndT:
    """Return the answer of a cancel. Raises AlreadySettled if it is sold, GrantSuperseded if another holder has it."""
    if isinstance(answer, Superseded):
        raise GrantSuperseded(answer.order_id, answer.fencing_token)
    if answer.state == "confirmed":
        raise AlreadySettled(answer)
    return answer


def as_reserved(answer: Reserved | Settled, cannot: str) -> Reserved:
    """Return what a reserved order has now. Raises AlreadySettled, which names what it `cannot`, if it has ended."""
    if isinstance(answer, Settled):
        raise AlreadySettled(answer, cannot)
    return answer


def as_returned(answer: Returned | Settled | None, order_id: str) -> Returned:
    """Return the answer of a return. Raises AlreadySettled if the order is sold no more, InvalidInput if not yet."""
    if answer is None:
        raise InvalidInput(f"order {order_id!r} is reserved, not sold: cancel it, or change its quantity")
    if isinstance(answer, Settled):
        raise AlreadySettled(answer, "nothing of it can be returned")
    return answer


def all_as_asked(
    check: Callable[[Settled], Settled], answers: Iterable[Settled | SegmentedError | None]
) -> list[Settled | SegmentedError]:
    """Return the answers of many; the error of an order that has ended otherwise takes its answer's place."""
    found: list[Settled | SegmentedError] = []
    for answer in answers:
        try:
            if answer is not None:  # the answer to expire only
                found.append(check(answer) if isinstance(answer, Settled) else answer)
        except AlreadySettled as error:
            found.append(error)
    return found


ToldT = TypeVar("ToldT")
SoldState = OrderState | Literal["unknown"]
"""How a webhook finds its order: confirmed, ended otherwise, or unknown to the pool and its order database."""


class Sold(Generic[ToldT]):
    """State of an order in a transaction. True in a condition if the order is sold once the transaction commits."""

    def __init__(
        self, order_id: str, state: SoldState, quantity: int, tell: Callable[[], ToldT], *, replay: bool
    ) -> None:
        self.order_id = order_id
        self.state = state
        self.quantity = quantity
        """Units that the order has; 0 if it is unknown."""
        self.replay = replay
        """True if an earlier call has decided the order: what belongs to it was stored then."""
        self._tell = tell

    def tell(self) -> ToldT:
        """Tell the pool after the commit. Returns how the order ended there; None if the transaction stored nothing.

        If nobody does, the order is confirmed in the pool when its hold ends: the workers' expiry, or `pool.expire`,
        finds it sold. Safe to repeat, and of no effect after a rollback: the units stay reserved.
        """
        return self._tell()

    def __bool__(self) -> bool:
        """Return whether the order is sold."""
        return self.state == "confirmed"

    def __repr__(self) -> str:
        return f"Sold({self.order_id!r}, {self.state}, quantity={self.quantity}, replay={self.replay})"

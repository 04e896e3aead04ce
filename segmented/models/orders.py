"""Orders, and the answers to requests for units. A refusal in a `with` statement raises NotGranted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn

from segmented.errors import InvalidInput, NotGranted, OrderMismatch
from segmented.models.ids import QUANTITY_MAX, checked_id, is_plain_id, plural, shortened
from segmented.models.truth import Done, NotDone

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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class _End:
    order_id: str
    state: OrderState
    quantity: int
    segment: int
    fencing_token: int | None
    sequence: int
    replay: bool


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Decided(_End, NothingGranted):
    """The order was decided before, so it gets no units now: a refusal, with the order's final state."""

    def describe(self) -> str:
        """Return the answer in words."""
        return f"already {self.state}"


def decided_as(settled: Settled) -> Decided:
    """Return an order's final state as the refusal that a later request for units gets."""
    return Decided(
        settled.order_id,
        settled.state,
        settled.quantity,
        settled.segment,
        settled.fencing_token,
        settled.sequence,
        settled.replay,
    )


def fate_of(end: Settled | Decided) -> Settled | Decided:
    """Return an order's final state as its buyer's answer: true if it is sold, otherwise false."""
    if end.state == "confirmed":
        fields = (end.order_id, end.state, end.quantity, end.segment, end.fencing_token, end.sequence, end.replay)
        return end if isinstance(end, Settled) else Settled(*fields)
    return end if isinstance(end, Decided) else decided_as(end)


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

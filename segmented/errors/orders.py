"""Errors of one order or cart."""

from __future__ import annotations

from typing import Protocol

from segmented.errors.base import SegmentedError
from segmented.errors.locks import LeaseError
from segmented.errors.pools import StockError


class Refused(Protocol):
    """An answer that refuses, such as SoldOut: see `segmented.models.Refusal`."""

    @property
    def order_id(self) -> str:
        """Return the order id."""

    def describe(self) -> str:
        """Return the reason in a few words."""


class Ended(Protocol):
    """An answer with the state in which an order or a cart has ended: see `Settled` and `CartSettled`."""

    @property
    def state(self) -> str:
        """Return the state."""

    def describe(self) -> str:
        """Return what has ended, and how, as the beginning of a sentence."""


class AlreadySettled(StockError):
    """The order or cart has ended otherwise than asked: nothing changed.

    Cure: Read `state`: a confirmed order is sold, any other has returned its units; use a new order id.
    """

    def __init__(self, settled: Ended, cannot: str = "") -> None:
        given = "its units are not given back" if settled.state == "confirmed" else "it cannot be confirmed"
        super().__init__(f"{settled.describe()}: {cannot or given}")
        self.settled = settled
        self.state = settled.state


class GrantLost(LeaseError):
    """The order ended while the body of its grant's `with` statement ran, so it is not sold.

    Cure: Undo what the body did, or choose a longer `hold`; order again with a new id.
    """

    def __init__(self, order_id: str, state: str) -> None:
        why = "its hold ended" if state == "expired" else f"it was {state}"
        super().__init__(f"order {order_id!r} is not sold: {why} while the body ran, and its units went back")
        self.order_id = order_id
        self.state = state


class NotGranted(StockError):
    """The order was refused, so the body of the `with` statement did not run.

    Cure: Handle `refusal`; outside of `with`, `grant` returns it as a value.
    """

    def __init__(self, refusal: Refused) -> None:
        super().__init__(f"order {refusal.order_id!r} was not granted: {refusal.describe()}")
        self.refusal = refusal


class NotConfirmed(StockError):
    """The order was not confirmed by this call, so the body of the `with` statement did not run.

    Cure: Handle `answer`: the database had decided the order before, or refused it.
    """

    def __init__(self, order_id: str, answer: object) -> None:
        super().__init__(f"order {order_id!r} was not confirmed by this transaction: {answer}")
        self.order_id = order_id
        self.answer = answer


class OrderMismatch(StockError):
    """An order id was used again with other content.

    Cure: Use a new order id, or repeat the order with its stored content.
    """

    def __init__(self, order_id: str, detail: str = "") -> None:
        super().__init__(f"order {order_id!r} exists with other content{': ' + detail if detail else ''}")
        self.order_id = order_id


class OrderUnknown(StockError):
    """The pool knows no such order.

    Cure: Check the id and the pool; a forgotten or archived order is no longer in the pool.
    """

    def __init__(self, order_id: str) -> None:
        super().__init__(f"order {order_id!r} is not known to the pool")
        self.order_id = order_id


class OrderQueued(StockError):
    """The order was submitted, and no worker has decided it yet.

    Cure: Wait for a worker (`handle.wait`), or cancel the order.
    """

    def __init__(self, order_id: str) -> None:
        super().__init__(f"order {order_id!r} is queued: a worker decides it first, unless it is cancelled")
        self.order_id = order_id


class OrderInWork(StockError):
    """A holder, a worker or a cart has the order, so its units are not changed.

    Cure: Change the order before it is submitted or granted, or cancel it; a cart keeps its lines.
    """

    def __init__(self, order_id: str) -> None:
        super().__init__(f"order {order_id!r} is in work: a holder, a worker or a cart has it, and its units stay")
        self.order_id = order_id


class OrderInHand(SegmentedError):
    """Another delivery of the order is in progress, or its worker died and its lease has not expired.

    Cure: Let the message be delivered again after `seconds`.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class NoSegmentFree(SegmentedError, TimeoutError):
    """No segment became free within a task's maximum wait.

    Cure: Add segments or workers, shorten the step, or wait longer; the task is retried.
    """


class GrantSuperseded(StockError):
    """A later grant reached the order database first, so this holder must stop.

    Cure: Stop: another worker finishes the order.
    """

    def __init__(self, order_id: str, fence: int) -> None:
        super().__init__(f"grant for order {order_id!r} is superseded by fencing token {fence}")
        self.order_id = order_id
        self.fence = fence


class CartMismatch(StockError):
    """A cart id was used again with other content.

    Cure: Use a new cart id, or repeat the cart with its stored content.
    """

    def __init__(self, home: str, cart_id: str, detail: str = "") -> None:
        told = f": {detail}" if detail else ""
        super().__init__(f"cart {cart_id!r} in the pool {home!r} exists with other content{told}")
        self.home = home
        self.cart_id = cart_id


class CartUnknown(StockError):
    """The pool knows no such cart.

    Cure: Name the first of the cart's skus as its home, and check the id.
    """

    def __init__(self, home: str, cart_id: str) -> None:
        super().__init__(f"cart {cart_id!r} is not known to the pool {home!r}: its home is the first of its skus")
        self.home = home
        self.cart_id = cart_id


class CartDiverged(StockError):
    """An order of a cart was ended against the cart's decision, by something other than the cart.

    Cure: Compare the cart with its orders; if one is sold, the cart can only be confirmed.
    """

    def __init__(self, cart_id: str, state: str, sku: str, detail: str) -> None:
        super().__init__(f"cart {cart_id!r} is {state}, but its line in the pool {sku!r} {detail}")
        self.cart_id, self.state, self.sku = cart_id, state, sku

"""The kinds of records that are measured, each made by the operations that programs use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.models import Cart, Order
from segmented.stock import Carts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.stores.redis import RedisStore

SKU: Final = "poster"
OTHER: Final = "ticket"
"""The second sku of a cart."""
AT_ONCE: Final = 500
BATCH: Final = 100
HOLD_MS: Final = 3_600_000
TTL_MS: Final = 3_600_000
Make = Callable[["RedisStore", int, int], None]
"""Gets the store, the number of the first record, and how many to make."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of record."""

    name: str
    summary: str
    make: Make
    gated: bool = False
    limit_per_customer: int | None = None
    in_pool: bool = True
    """Whether the records are in the keys of the pool."""
    share: int = 1
    """How many of the named records one made record is."""
    divisor: int = 1
    """One record is made for each of so many orders; slow kinds make fewer."""


def order_id(number: int) -> str:
    """Return an order id of 14 characters, which are in the record and in each entry of the ledger."""
    return f"order-{number:08d}"


def _performed(store: RedisStore, operations: Iterable[op.Operation[Any]]) -> None:
    """Perform each operation as one step of its own; many are sent together. Raises the first failure."""
    waiting: list[op.Operation[Any]] = []
    for operation in operations:
        waiting.append(operation)
        if len(waiting) == AT_ONCE:
            _sent(store, waiting)
            waiting = []
    _sent(store, waiting)


def _sent(store: RedisStore, operations: list[op.Operation[Any]]) -> None:
    for answer in store.execute_many(operations) if operations else ():
        if isinstance(answer, SegmentedError):
            raise answer


def _single(store: RedisStore, first: int, count: int) -> None:
    numbers = range(first, first + count)
    _performed(store, (op.Reserve(SKU, Order(order_id(number), 1), HOLD_MS) for number in numbers))
    _performed(store, (op.Confirm(SKU, order_id(number)) for number in numbers))


def _reserved(store: RedisStore, first: int, count: int) -> None:
    _performed(store, (op.Reserve(SKU, Order(order_id(number), 1), HOLD_MS) for number in range(first, first + count)))


def _batched(store: RedisStore, first: int, count: int) -> None:
    for start in range(first, first + count, BATCH):
        ids = tuple(order_id(number) for number in range(start, start + BATCH))
        store.execute(op.ReserveMany(SKU, tuple(Order(name, 1) for name in ids), HOLD_MS))
        store.execute(op.SettleMany(SKU, "confirmed", ids))


def _customers(store: RedisStore, first: int, count: int) -> None:
    numbers = range(first, first + count)
    orders = (Order(order_id(number), 1, f"customer-{number:08d}") for number in numbers)
    _performed(store, (op.Reserve(SKU, order, HOLD_MS) for order in orders))
    _performed(store, (op.Confirm(SKU, order_id(number)) for number in numbers))


def _granted(store: RedisStore, first: int, count: int, *, stored: bool = False) -> None:
    for number in range(first, first + count):  # the segments are few, so each grant ends before the next begins
        order = Order(order_id(number), 1)
        store.execute(op.Grant(SKU, order, f"{number:032x}", TTL_MS, HOLD_MS, keep_refusal=False))
        store.execute(op.Confirm(SKU, order.order_id, None, stored))


def _gated(store: RedisStore, first: int, count: int) -> None:
    _granted(store, first, count, stored=True)


def _submitted(store: RedisStore, first: int, count: int) -> None:
    for start in range(first, first + count, BATCH):
        ids = tuple(order_id(number) for number in range(start, start + BATCH))
        orders = tuple(Order(name, 1) for name in ids)
        store.execute(op.ReserveMany(SKU, orders, HOLD_MS, publish_after_ms=HOLD_MS))
        _performed(store, (op.Confirm(SKU, name) for name in ids))


def _carts(store: RedisStore, first: int, count: int) -> None:
    carts = Carts(store)
    for number in range(first, first + count):
        cart = Cart(f"cart-{number:08d}", [(SKU, 1), (OTHER, 1)])
        carts.reserve(cart)
        carts.confirm(cart.cart_id, home=SKU)


def _restocked(store: RedisStore, first: int, count: int) -> None:
    _performed(store, (op.Restock(SKU, f"more-{number:09d}", 1) for number in range(first, first + count)))


def _locked(store: RedisStore, first: int, count: int) -> None:
    _performed(store, (op.AcquireLock(order_id(one), f"{one:032x}", TTL_MS) for one in range(first, first + count)))


def _released(store: RedisStore, first: int, count: int) -> None:
    _locked(store, first, count)
    _performed(store, (op.ReleaseLock(order_id(one), f"{one:032x}") for one in range(first, first + count)))


KINDS: Final = (
    Kind("reserved", "an order that is reserved and not decided yet", _reserved),
    Kind("sold", "`reserve` and `confirm`, one order at a time", _single),
    Kind("sold in batches", f"`reserve_many` and `confirm_many`, {BATCH} orders at a time", _batched),
    Kind(
        "sold with a customer",
        "as *sold*, in a pool that limits its customers, one order each",
        _customers,
        limit_per_customer=5,
    ),
    Kind("granted", "`with pool.grant(...)`: a segment's lock and a fencing token", _granted, divisor=4),
    Kind("gated", "as *granted*, with an order database, whose rows come on top", _gated, gated=True, divisor=4),
    Kind("submitted", f"accepted {BATCH} at a time, confirmed one by one", _submitted),
    Kind("cart line", "carts of two lines, reserved and confirmed", _carts, share=2, divisor=8),
    Kind("restock id", "`restock` and `withdraw`, whose ids are kept", _restocked),
    Kind("held lock", "a named lock, while it is held", _locked, in_pool=False),
    Kind("released lock", "the fencing token of a released lock, which is kept for a day", _released, in_pool=False),
)
"""Every kind, in the order of the page."""

"""What the audit of carts makes of pools that do not answer, and of carts that move on between its reads."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import StoreUnavailable
from segmented.models import Cart
from segmented.stock import Carts, Pool
from segmented.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

CART = Cart("c1", [("a", 1), ("b", 2)])


class WatchedStore(MemoryStore):
    """A store with something that happens, or fails, before an operation."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock())
        self.before: Callable[[op.Operation[Any]], object] = lambda _: None
        self.asked: list[op.Operation[Any]] = []

    def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # any answer
        self.asked.append(operation)
        self.before(operation)
        return super().execute(operation, deadline=deadline)

    def silence(self, sku: str) -> None:
        """Let the pool `sku` answer nothing any more."""

        def fail(operation: op.Operation[Any]) -> None:
            if sku in {getattr(operation, "sku", None), getattr(operation, "home", None)}:
                message = "no reply in time"
                raise StoreUnavailable(message)

        self.before = fail


@pytest.fixture
def store() -> WatchedStore:
    """Ten units each of a and b, and a cart that is reserved and pinned."""
    made = WatchedStore()
    for sku in "ab":
        Pool(made, sku).open(stock=10, segments=2)
    Carts(made).reserve(CART)
    for sku in "ab":
        made.execute(op.PinOrder(sku, CART.order_id, "a"))
    return made


@pytest.mark.parametrize(("asked", "silent"), [("a", "b"), ("b", "a")])
def test_a_pool_that_does_not_answer_is_told_and_nothing_is_guessed(
    store: WatchedStore, asked: str, silent: str
) -> None:
    store.execute(op.DecideCart("a", "c1", "confirmed"))
    store.execute(op.FinishCart("a", "c1"))
    Pool(store, asked).confirm(CART.order_id)
    Pool(store, silent).confirm(CART.order_id)
    store.silence(silent)
    report = Pool(store, asked).audit()
    assert report.drift == ()
    assert report.is_clean
    assert report.unread == (() if asked == "b" else ("carts with pool 'b': no reply in time",))


def test_a_home_that_does_not_answer_is_told_and_its_pinned_orders_are_not_judged(store: WatchedStore) -> None:
    store.silence("a")
    report = Pool(store, "b").audit()
    assert (report.drift, report.unread) == ((), ("carts with pool 'a': no reply in time",))


def test_a_pool_that_does_not_answer_is_asked_once(store: WatchedStore) -> None:
    carts = Carts(store)
    for index in range(500):
        carts.reserve(Cart(f"more-{index}", [("b", 1), ("a", 1)], None))
    store.asked.clear()
    store.silence("b")
    report = Pool(store, "a").audit()
    assert report.unread == ("carts with pool 'b': no reply in time",)
    assert sum(getattr(one, "sku", "") == "b" for one in store.asked) == 1


def test_a_pool_that_cannot_read_its_own_orders_raises(store: WatchedStore) -> None:
    def fail(operation: op.Operation[Any]) -> None:
        if isinstance(operation, op.InspectOrders) and any(isinstance(one, op.ScanCarts) for one in store.asked):
            store.before = lambda _: None
            message = "gone"
            raise StoreUnavailable(message)

    store.asked.clear()
    store.before = fail
    with pytest.raises(StoreUnavailable, match="gone"):
        Pool(store, "a").audit()


@pytest.mark.parametrize("kind", [op.InspectCarts, op.InspectOrders, op.ScanCarts, op.ScanPinned])
@pytest.mark.parametrize("sku", ["a", "b"])
@pytest.mark.parametrize("end", ["confirm", "cancel"])
def test_a_cart_that_ends_before_any_read_of_the_audit_is_no_drift(
    store: WatchedStore, kind: type, sku: str, end: str
) -> None:
    for moment in range(1, 9):
        cart = Cart(f"moves-{moment}", [("a", 1), ("b", 1)])
        Pool(store, "a").restock(1, restock_id=f"a{moment}")
        Pool(store, "b").restock(1, restock_id=f"b{moment}")
        Carts(store).reserve(cart)
        store.before = strike(store, kind, moment, lambda cart=cart: getattr(Carts(store), end)(cart.cart_id, home="a"))  # type: ignore[misc]  # a default that binds
        assert Pool(store, sku).audit().drift == ()
        store.before = lambda _: None
        assert Pool(store, sku).audit().drift == ()


def strike(
    store: WatchedStore, kind: type, moment: int, act: Callable[[], object]
) -> Callable[[op.Operation[Any]], object]:
    """Act just before operation number `moment` of a kind."""
    count = 0

    def before(operation: op.Operation[Any]) -> None:
        nonlocal count
        count += isinstance(operation, kind)
        if isinstance(operation, kind) and count == moment:
            store.before = lambda _: None
            act()

    return before

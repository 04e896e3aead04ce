"""Carts: the model, the plans, and the audit."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import pytest

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import CartDiverged, InvalidInput, PoolMissing, SegmentedError, StoreUnavailable
from segmented.models import (
    CART_SKUS_MAX,
    QUANTITY_MAX,
    Busy,
    Cart,
    CartDecided,
    CartRefused,
    CartReserved,
    CartSettled,
    Order,
)
from segmented.models.ids import checked_id
from segmented.stock import Carts, Pool
from segmented.stores.memory import MemoryStore


@pytest.mark.parametrize(
    "other",
    [Cart("c", [("a", 2)]), Cart("c", [("a", 1), ("b", 1)]), Cart("c", [("a", 1)], "ann"), Cart("d", [("a", 1)])],
)
def test_other_content_and_another_id_are_other_orders(other: Cart) -> None:
    assert Cart("c", [("a", 1)]).order_id != other.order_id


@pytest.mark.parametrize(
    ("cart_id", "lines", "customer_id", "why"),
    [
        ("c", [], None, "has no lines"),
        ("c", [("a", 1, 2)], None, "is not a pair of sku and quantity"),
        ("c", 5, None, "are not pairs of sku and quantity"),
        ("c", [("a", 5), ("a", -1)], None, "quantity -1 of 'a'"),
        ("c", [("a", QUANTITY_MAX), ("a", 1)], None, "1000000001 in all"),
        ("c", [(f"s{index}", 1) for index in range(CART_SKUS_MAX + 1)], None, "more than 100 skus"),
    ],
)
def test_what_no_pool_can_hold_is_refused_in_one_sentence(
    cart_id: Any,  # noqa: ANN401  # what a caller may get wrong
    lines: Any,  # noqa: ANN401  # as above
    customer_id: str | None,
    why: str,
) -> None:
    with pytest.raises(InvalidInput, match=why) as raised:
        Cart(cart_id, lines, customer_id)
    assert "\n" not in str(raised.value)


CART = Cart("c1", [("a", 1), ("b", 2), ("c", 3)])


class FlakyStore(MemoryStore):
    """A store that fails for the operations that `fails` picks, before or after it has performed them."""

    def __init__(self) -> None:
        """Begin without failures."""
        super().__init__(clock=ManualClock())
        self.fails: Callable[[op.Operation[Any]], SegmentedError | None] = lambda _: None
        self.asked: list[op.Operation[Any]] = []

    def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # any answer
        """Fail or perform."""
        self.asked.append(operation)
        if (failure := self.fails(operation)) is not None:
            raise failure
        return super().execute(operation, deadline=deadline)

    def fail(self, *kinds: type, sku: str | None = None, error: SegmentedError | None = None) -> None:
        """Fail for operations of these kinds, in the pool `sku` where given."""

        def picks(operation: op.Operation[Any]) -> SegmentedError | None:
            is_meant = isinstance(operation, kinds) and sku in {None, getattr(operation, "sku", None)}
            return (error or StoreUnavailable("no reply in time")) if is_meant else None

        self.fails = picks

    def mend(self) -> None:
        self.fails = lambda _: None


@pytest.fixture
def store() -> FlakyStore:
    """Ten units each of a, b and c."""
    made = FlakyStore()
    for sku in "abc":
        Pool(made, sku).open(stock=10, segments=2)
    return made


def totals(store: MemoryStore, skus: Sequence[str] = "abc") -> list[tuple[int, int, int]]:
    states = [Pool(store, sku).state() for sku in skus]
    return [(state.available, state.reserved, state.confirmed) for state in states]


def end_before(store: FlakyStore, sku: str, end: Callable[[], object], error: SegmentedError | None = None) -> None:
    """Let `end` happen just before the first reservation in the pool `sku`; then the pool `c` fails, if at all."""

    def fails_c(operation: op.Operation[Any]) -> SegmentedError | None:
        return error if isinstance(operation, op.Reserve) and operation.sku == "c" else None

    def strike(operation: op.Operation[Any]) -> SegmentedError | None:
        if isinstance(operation, op.Reserve) and operation.sku == sku:
            store.mend()
            end()
            store.fails = fails_c
        return None

    store.fails = strike


@pytest.mark.parametrize("sku", ["a", "b", "c"])
def test_a_cart_that_is_cancelled_between_two_lines_keeps_none(store: FlakyStore, sku: str) -> None:
    carts = Carts(store)
    seen: list[CartSettled] = []
    end_before(store, sku, lambda: seen.append(carts.cancel("c1", home="a")))
    assert carts.reserve(CART) == CartDecided("c1", "cancelled", replay=True, is_finished=True)
    assert seen == [CartSettled("c1", "cancelled", replay=False, is_finished=True)]
    assert totals(store) == [(10, 0, 0)] * 3


def test_a_cart_that_is_cancelled_before_a_line_whose_pool_vanished_keeps_none(store: FlakyStore) -> None:
    carts = Carts(store)
    end_before(store, "b", lambda: carts.cancel("c1", home="a"), PoolMissing("c"))
    with pytest.raises(PoolMissing):
        carts.reserve(CART)
    assert totals(store) == [(10, 0, 0)] * 3


@pytest.mark.parametrize("sku", ["a", "b", "c"])
def test_a_pool_that_does_not_answer_a_confirm_gets_it_later(store: FlakyStore, sku: str) -> None:
    carts = Carts(store)
    carts.reserve(CART)
    store.fail(op.Confirm, sku=sku)
    assert carts.confirm("c1", home="a") == CartSettled("c1", "confirmed", replay=False, is_finished=False)
    store.mend()
    sweep = carts.finish("a")
    assert sweep.finished == (CartSettled("c1", "confirmed", replay=True, is_finished=True),)
    assert totals(store) == [(9, 0, 1), (8, 0, 2), (7, 0, 3)]


def test_a_note_that_all_is_done_which_is_lost_is_made_by_the_next_one(store: FlakyStore) -> None:
    carts = Carts(store)
    carts.reserve(CART)
    store.fail(op.FinishCart)
    assert carts.cancel("c1", home="a") == CartSettled("c1", "cancelled", replay=False, is_finished=False)
    store.mend()
    assert carts.cancel("c1", home="a") == CartSettled("c1", "cancelled", replay=True, is_finished=True)
    assert totals(store) == [(10, 0, 0)] * 3


def test_nothing_is_decided_while_a_pool_does_not_answer_for_its_line(store: FlakyStore) -> None:
    carts = Carts(store)
    carts.reserve(CART)
    store.fail(op.PinOrder, sku="b")
    with pytest.raises(StoreUnavailable):
        carts.confirm("c1", home="a")
    assert carts.read("c1", home="a").state == "reserved"
    store.mend()
    assert carts.confirm("c1", home="a").state == "confirmed"


def test_a_cart_that_is_sold_in_a_pool_that_vanished_is_named(store: FlakyStore) -> None:
    carts = Carts(store)
    carts.reserve(CART)
    store.fail(op.Confirm, sku="c", error=PoolMissing("c"))
    with pytest.raises(CartDiverged, match="'c1' is confirmed, but its line in the pool 'c' cannot be ended") as raised:
        carts.confirm("c1", home="a")
    assert (raised.value.sku, raised.value.state) == ("c", "confirmed")


def test_a_sweep_asks_a_pool_that_is_down_once_and_not_for_every_cart(store: FlakyStore) -> None:
    carts = Carts(store, hold=1)
    for index in range(10):
        cart = Cart(f"c{index}", [(sku, 1) for sku in ("ab" if index % 2 else "ac")])
        assert isinstance(carts.reserve(cart), CartReserved)
    store.clock.advance(2)  # type: ignore[attr-defined]  # a manual clock
    store.fail(op.Cancel, sku="b")
    store.asked.clear()
    sweep = carts.finish("a")
    assert sum(isinstance(asked, op.Cancel) and asked.sku == "b" for asked in store.asked) == 1
    assert len(sweep.finished) == 5
    assert {type(error) for _, error in sweep.failed} == {StoreUnavailable}
    assert len(sweep.failed) == 5
    store.mend()
    assert len(carts.finish("a").finished) == 5
    assert totals(store) == [(10, 0, 0)] * 3


def test_a_cart_is_refused_as_busy_when_a_pool_stays_so(store: FlakyStore) -> None:
    store.fail(op.Reserve, sku="b")
    cart = Cart("c2", [("a", 1), ("b", 1)])
    busy = Busy(cart.order_id, 7, 0)
    performed = store.execute

    def execute(operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # any answer
        if isinstance(operation, op.Reserve) and operation.sku == "b":
            return busy
        return performed(operation, deadline=deadline)

    store.execute = execute  # type: ignore[method-assign]  # one answer that takes 16,000 lapsed holds to get
    assert Carts(store).reserve(cart) == CartRefused("c2", "b", busy, replay=False)
    assert totals(store, "a") == [(10, 0, 0)]


def test_a_reserved_cart_costs_a_round_trip_a_line_and_two_more_once_pools_are_known(store: FlakyStore) -> None:
    carts = Carts(store)
    carts.reserve(CART)
    store.asked.clear()
    carts.reserve(Cart("c2", CART.lines))
    kinds = [type(asked) for asked in store.asked]
    assert kinds == [op.OpenCart, op.Reserve, op.Reserve, op.Reserve, op.DecideCart]
    assert [asked.sku for asked in store.asked if isinstance(asked, op.Reserve)] == ["a", "b", "c"]


def test_a_line_that_lapsed_before_its_cart_was_reserved_makes_it_expired(store: FlakyStore) -> None:
    store.execute(op.OpenCart(CART, 600_000))
    store.execute(op.Reserve("a", Order(CART.order_id, 1), 1))
    store.clock.advance(0.01)  # type: ignore[attr-defined]  # a manual clock
    Pool(store, "a").expire()
    assert Carts(store).reserve(CART) == CartDecided("c1", "expired", replay=False, is_finished=True)


AUDITED = Cart("c1", [("a", 1), ("b", 2)])


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
                raise StoreUnavailable("no reply in time")

        self.before = fail


@pytest.fixture
def audited_store() -> WatchedStore:
    """Ten units each of a and b, and a cart that is reserved and pinned."""
    made = WatchedStore()
    for sku in "ab":
        Pool(made, sku).open(stock=10, segments=2)
    Carts(made).reserve(AUDITED)
    for sku in "ab":
        made.execute(op.PinOrder(sku, AUDITED.order_id, "a"))
    return made


def test_a_home_that_does_not_answer_is_told_and_its_pinned_orders_are_not_judged(
    audited_store: WatchedStore,
) -> None:
    audited_store.silence("a")
    report = Pool(audited_store, "b").audit()
    assert (report.drift, report.unread) == ((), ("carts with pool 'a': no reply in time",))


def test_a_pool_that_cannot_read_its_own_orders_raises(audited_store: WatchedStore) -> None:
    def fail(operation: op.Operation[Any]) -> None:
        if isinstance(operation, op.InspectOrders) and any(
            isinstance(one, op.ScanKey) and one.key == "carts" for one in audited_store.asked
        ):
            audited_store.before = lambda _: None
            raise StoreUnavailable("gone")

    audited_store.asked.clear()
    audited_store.before = fail
    with pytest.raises(StoreUnavailable, match="gone"):
        Pool(audited_store, "a").audit()


@pytest.mark.parametrize("kind", [op.InspectCarts, op.InspectOrders, op.ScanKey])
@pytest.mark.parametrize("sku", ["a", "b"])
@pytest.mark.parametrize("end", ["confirm", "cancel"])
def test_a_cart_that_ends_before_any_read_of_the_audit_is_no_drift(
    audited_store: WatchedStore, kind: type, sku: str, end: str
) -> None:
    for moment in range(1, 9):
        cart = Cart(f"moves-{moment}", [("a", 1), ("b", 1)])
        Pool(audited_store, "a").restock(1, restock_id=f"a{moment}")
        Pool(audited_store, "b").restock(1, restock_id=f"b{moment}")
        Carts(audited_store).reserve(cart)
        audited_store.before = strike(
            audited_store,
            kind,
            moment,
            lambda cart=cart: getattr(Carts(audited_store), end)(cart.cart_id, home="a"),  # type: ignore[misc]  # a default that binds
        )
        assert Pool(audited_store, sku).audit().drift == ()
        audited_store.before = lambda _: None
        assert Pool(audited_store, sku).audit().drift == ()


def strike(
    audited_store: WatchedStore, kind: type, moment: int, act: Callable[[], object]
) -> Callable[[op.Operation[Any]], object]:
    """Act just before operation number `moment` of a kind."""
    count = 0

    def before(operation: op.Operation[Any]) -> None:
        nonlocal count
        count += isinstance(operation, kind)
        if isinstance(operation, kind) and count == moment:
            audited_store.before = lambda _: None
            act()

    return before


def test_the_longest_cart_id_makes_an_order_id_that_a_pool_takes() -> None:
    checked_id(Cart("ü" * 120, [("a", 1)]).order_id, "order id")

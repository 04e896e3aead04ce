"""What a cart's plan makes of a pool that does not answer, or that vanished: each failure where it can strike."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.errors import CartDiverged, PoolMissing, SegmentedError, StoreUnavailable
from segmented.models import Busy, Cart, CartDecided, CartRefused, CartReserved, CartSettled, Order
from segmented.stock import Carts, Pool
from segmented.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


@pytest.mark.parametrize("sku", ["a", "b", "c"])
def test_a_cart_that_is_swept_at_its_deadline_between_two_lines_keeps_none(store: FlakyStore, sku: str) -> None:
    carts = Carts(store, hold=60)
    seen: list[CartSettled] = []

    def sweep() -> None:
        store.clock.advance(60)  # type: ignore[attr-defined]  # a manual clock
        seen.extend(carts.finish("a").finished)

    end_before(store, sku, sweep)
    assert carts.reserve(CART) == CartDecided("c1", "expired", replay=True, is_finished=True)
    assert seen == [CartSettled("c1", "expired", replay=False, is_finished=True)]
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


def test_a_refused_cart_is_refused_also_when_its_lines_cannot_be_given_back_at_once(store: FlakyStore) -> None:
    store.fail(op.Cancel, sku="a")
    cart = Cart("c2", [("a", 1), ("b", 11)])
    answer = Carts(store).reserve(cart)
    assert isinstance(answer, CartRefused)
    assert (answer.sku, totals(store)[0]) == ("b", (9, 1, 0))
    store.mend()
    assert [one.state for one in Carts(store).finish("a").finished] == ["refused"]
    assert totals(store)[0] == (10, 0, 0)


def test_a_pool_that_vanished_meanwhile_voids_the_cart(store: FlakyStore) -> None:
    carts = Carts(store)
    carts.reserve(CART)
    carts.cancel("c1", home="a")
    store.fail(op.Reserve, op.Cancel, sku="c", error=PoolMissing("c"))
    with pytest.raises(PoolMissing):
        carts.reserve(Cart("c2", CART.lines))
    found = carts.read("c2", home="a")
    assert (found.state, found.is_finished) == ("cancelled", True)
    assert totals(store) == [(10, 0, 0)] * 3


def test_a_cart_that_is_sold_in_a_pool_that_vanished_is_named(store: FlakyStore) -> None:
    carts = Carts(store)
    carts.reserve(CART)
    store.fail(op.Confirm, sku="c", error=PoolMissing("c"))
    with pytest.raises(CartDiverged, match="'c1' is confirmed, but its line in the pool 'c' cannot be ended") as raised:
        carts.confirm("c1", home="a")
    assert (raised.value.sku, raised.value.state) == ("c", "confirmed")


def test_a_line_that_was_lost_is_no_cart_to_be_sold(store: FlakyStore) -> None:
    carts = Carts(store)
    carts.reserve(CART)
    store.fail(op.PinOrder, sku="b", error=PoolMissing("b"))
    with pytest.raises(PoolMissing):
        carts.confirm("c1", home="a")
    assert carts.read("c1", home="a").state == "reserved"


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


def test_a_line_ended_by_hand_before_its_cart_was_reserved_refuses_it(store: FlakyStore) -> None:
    store.execute(op.OpenCart(CART, 600_000))
    store.execute(op.Reserve("a", Order(CART.order_id, 1), 600_000))
    Pool(store, "a").cancel(CART.order_id)
    answer = Carts(store).reserve(CART)
    assert isinstance(answer, CartRefused)
    assert (answer.sku, answer.refusal.describe()) == ("a", "already cancelled")


def test_a_line_that_lapsed_before_its_cart_was_reserved_makes_it_expired(store: FlakyStore) -> None:
    store.execute(op.OpenCart(CART, 600_000))
    store.execute(op.Reserve("a", Order(CART.order_id, 1), 1))
    store.clock.advance(0.01)  # type: ignore[attr-defined]  # a manual clock
    Pool(store, "a").expire()
    assert Carts(store).reserve(CART) == CartDecided("c1", "expired", replay=False, is_finished=True)


def test_a_cart_that_lapses_while_it_is_reserved_is_expired(store: FlakyStore) -> None:
    store.execute(op.OpenCart(CART, 1))
    store.clock.advance(0.01)  # type: ignore[attr-defined]  # a manual clock
    found = store.execute(op.DecideCart("a", "c1", "reserved"))
    assert (found.state, found.replay, found.left_ms) == ("expired", False, 0)
    store.execute(op.OpenCart(Cart("c2", CART.lines), 1))
    store.clock.advance(0.01)  # type: ignore[attr-defined]  # a manual clock
    assert Carts(store).reserve(Cart("c2", CART.lines)).state == "expired"  # type: ignore[union-attr]  # it is settled


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "7"])
def test_a_sweep_has_a_limit(store: FlakyStore, limit: Any) -> None:  # noqa: ANN401  # what a caller may get wrong
    with pytest.raises(SegmentedError, match="not a whole number from 1 on"):
        Carts(store).finish("a", limit=limit)


@pytest.mark.parametrize(("home", "cart_id"), [("", "c"), ("a\n", "c"), ("a", ""), ("a", "x" * 241), ("x" * 129, "c")])
def test_a_home_and_a_cart_id_are_checked(store: FlakyStore, home: str, cart_id: str) -> None:
    carts = Carts(store)
    for ask in (carts.confirm, carts.cancel, carts.read):
        with pytest.raises(SegmentedError, match=r"home of a cart|cart id"):
            ask(cart_id, home=home)


def test_a_hold_is_a_lease() -> None:
    with pytest.raises(SegmentedError, match="hold of 0 s is not a duration"):
        Carts(MemoryStore(), hold=0)

"""How carts end on every store in both colours: one fate, and whoever meets a cart half-way finishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from segmented import protocol as op
from segmented.errors import CartDiverged, CartGated, InvalidInput, PoolMissing
from segmented.models import CartDecided, CartSettled, Order, UnfinishedCarts
from tests.support.contract.carts.carts import SHORT, SHORT_MS, CartPools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.protocol.carts import CartMove
    from tests.fixtures.stores import Side


@pytest.fixture
def pools(side: Side) -> Iterator[CartPools]:
    """Ten units each of a, b and c."""
    made = CartPools(side)
    for letter in "abc":
        made.open(letter, 10)
    yield made
    made.check_books()


def test_a_lapsed_cart_is_given_back_by_a_sweep_as_a_whole(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart, hold=SHORT)
    lives = pools.cart("c2", ("a", 1), ("b", 2))
    pools.reserved(lives)
    pools.let_lapse(cart)
    sweep = pools.carts().finish(pools.sku("a"))
    assert sweep.finished == (CartSettled("c1", "expired", replay=False, is_finished=True),)
    assert sweep.failed == ()
    assert pools.totals() == {"a": (9, 1, 0), "b": (8, 2, 0), "c": (10, 0, 0)}
    assert pools.carts().finish(pools.sku("a")).finished == ()
    assert pools.confirm(cart) == CartSettled("c1", "expired", replay=True, is_finished=True)


def test_a_lapsed_cart_whose_units_are_all_still_there_can_be_confirmed(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart, hold=SHORT)
    pools.let_lapse(cart)
    assert pools.confirm(cart).state == "confirmed"
    assert pools.totals() == {"a": (9, 0, 1), "b": (8, 0, 2), "c": (10, 0, 0)}


@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_a_cart_of_which_one_line_was_given_back_is_expired_as_a_whole(pools: CartPools, gone: str) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2), ("c", 3))
    pools.reserved(cart, hold=SHORT)
    pools.let_lapse(cart)
    assert pools.shops[gone].expire(cart.order_id) is not None
    assert pools.confirm(cart) == CartSettled("c1", "expired", replay=False, is_finished=True)
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0), "c": (10, 0, 0)}


def test_a_repeat_of_a_lapsed_cart_does_not_claim_that_it_is_reserved(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart, hold=SHORT)
    pools.let_lapse(cart)
    assert pools.reserve(cart) == CartDecided("c1", "expired", replay=False, is_finished=True)
    assert pools.totals()["b"] == (10, 0, 0)


def test_a_line_that_is_pinned_lapses_no_more_until_the_cart_is_decided(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart, hold=SHORT)
    pools.let_lapse(cart)
    for letter in "ab":
        assert pools.side.execute(op.PinOrder(pools.sku(letter), cart.order_id, cart.home)) == "reserved"
    for letter in "ab":
        assert pools.shops[letter].expire_due() == ((), False)
    assert pools.totals() == {"a": (9, 1, 0), "b": (8, 2, 0), "c": (10, 0, 0)}
    assert [one.state for one in pools.carts().finish(pools.sku("a")).finished] == ["expired"]
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0), "c": (10, 0, 0)}
    assert pools.side.execute(op.PinOrder(pools.sku("a"), cart.order_id, cart.home)) == "cancelled"


def test_a_cart_decided_by_somebody_who_died_is_finished_by_whoever_comes(pools: CartPools) -> None:
    sold, void = pools.cart("c1", ("a", 1), ("b", 2)), pools.cart("c2", ("a", 3), ("b", 3))
    for cart in (sold, void):
        pools.reserved(cart)
    for letter in "ab":
        pools.side.execute(op.PinOrder(pools.sku(letter), sold.order_id, sold.home))
    pools.side.execute(op.DecideCart(sold.home, "c1", "confirmed"))
    pools.side.execute(op.DecideCart(void.home, "c2", "cancelled"))
    pools.shops["a"].confirm(sold.order_id)
    assert pools.totals() == {"a": (6, 3, 1), "b": (5, 5, 0), "c": (10, 0, 0)}
    assert sorted(pools.due()) == ["c1", "c2"]
    sweep = pools.carts().finish(pools.sku("a"))
    assert {(one.cart_id, one.state) for one in sweep.finished} == {("c1", "confirmed"), ("c2", "cancelled")}
    assert pools.totals() == {"a": (9, 0, 1), "b": (8, 0, 2), "c": (10, 0, 0)}


def test_carts_that_are_not_finished_are_listed_longest_due_first_and_counted(pools: CartPools) -> None:
    """Whatever they wait for; one that is finished is not among them."""
    names = ("lapsed", "lives", "void", "sold")
    carts = {name: pools.cart(name, ("a", 1), ("b", 1)) for name in names}
    for name, cart in carts.items():
        pools.reserved(cart, hold=SHORT if name == "lapsed" else 600)
    pools.let_lapse(carts["lapsed"])
    pools.confirm(carts["sold"])
    pools.side.execute(op.DecideCart(pools.sku("a"), "void", "cancelled"))
    found = pools.carts().unfinished(pools.sku("a"))
    assert [(one.record.cart, one.record.state, one.is_due) for one in found.carts] == [
        (carts["lapsed"], "reserved", True),
        (carts["void"], "cancelled", True),
        (carts["lives"], "reserved", False),
    ]
    assert (found.count, found.due_count) == (3, 2)
    assert 500_000 < found.carts[2].due_in_ms <= 600_000
    first = pools.carts().unfinished(pools.sku("a"), limit=1)
    assert ([one.record.cart.cart_id for one in first.carts], first.count, first.due_count) == (["lapsed"], 3, 2)
    assert pools.carts().unfinished(pools.sku("b")) == UnfinishedCarts((), 0, 0)
    pools.carts().finish(pools.sku("a"))
    assert [one.record.cart.cart_id for one in pools.carts().unfinished(pools.sku("a")).carts] == ["lives"]


def test_a_list_of_carts_has_a_limit(pools: CartPools) -> None:
    for limit in (0, 1_001, True, cast("int", 1.5)):
        with pytest.raises(InvalidInput, match="of a list of carts is not a whole number from 1 to 1,000"):
            pools.carts().unfinished(pools.sku("a"), limit=limit)
    with pytest.raises(PoolMissing):
        pools.carts().unfinished("nowhere")


@pytest.mark.parametrize("ask", ["reserve", "confirm", "cancel"])
def test_any_call_finishes_what_was_decided(pools: CartPools, ask: str) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart)
    pools.side.execute(op.DecideCart(cart.home, "c1", "cancelled"))
    kind = CartDecided if ask == "reserve" else CartSettled
    assert getattr(pools, ask)(cart) == kind("c1", "cancelled", replay=True, is_finished=True)
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0), "c": (10, 0, 0)}
    assert pools.read(cart).is_finished


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_a_reservation_cut_short_goes_on_where_it_stopped(pools: CartPools, lines: int) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.side.execute(op.OpenCart(cart, 600_000))
    for letter, quantity in [("a", 1), ("b", 2)][:lines]:
        order = Order(cart.order_id, quantity)
        pools.side.execute(op.Reserve(pools.sku(letter), order, 600_000))
    assert pools.read(cart).state == "open"
    assert pools.confirm(cart).state == "confirmed"
    assert pools.totals() == {"a": (9, 0, 1), "b": (8, 0, 2), "c": (10, 0, 0)}


def test_a_reservation_cut_short_and_never_taken_up_is_given_back_as_a_whole(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.side.execute(op.OpenCart(cart, SHORT_MS))
    pools.side.execute(op.Reserve(cart.home, Order(cart.order_id, 1), SHORT_MS))
    pools.let_lapse(cart)
    assert [one.state for one in pools.carts().finish(cart.home).finished] == ["expired"]
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0), "c": (10, 0, 0)}
    assert pools.line("b", cart) is None


def test_a_cart_that_lapsed_first_stays_first_after_it_was_decided(pools: CartPools) -> None:
    first, second = (pools.cart(cart_id, ("a", 1)) for cart_id in ("c1", "c2"))
    for cart in (first, second):
        pools.reserved(cart, hold=SHORT)
        pools.side.pass_time(0.002)
    pools.let_lapse(first, second)
    pools.side.execute(op.DecideCart(first.home, "c1", "expired"))
    assert pools.due() == ["c1", "c2"]


def test_a_late_line_of_a_void_cart_is_held_for_no_longer_than_a_hold(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.side.execute(op.OpenCart(cart, SHORT_MS))
    pools.cancel(cart)
    pools.side.execute(op.Reserve(pools.sku("b"), Order(cart.order_id, 2), SHORT_MS))
    late = pools.side.execute(op.DecideCart(cart.home, "c1", "reserved"))
    assert (late.state, late.replay) == ("cancelled", True)
    pools.let_lapse(cart)
    pools.shops["b"].expire_due()
    assert pools.totals()["b"] == (10, 0, 0)


MOVES = {
    "open": {"reserved", "refused", "cancelled", "expired"},
    "reserved": {"confirmed", "cancelled", "expired"},
}
WAYS: dict[str, list[CartMove]] = {
    "open": [],
    "reserved": ["reserved"],
    "refused": ["refused"],
    "cancelled": ["cancelled"],
    "expired": ["expired"],
    "confirmed": ["reserved", "confirmed"],
}


@pytest.mark.parametrize("state", WAYS)
def test_a_cart_moves_where_it_may_and_stays_where_it_may_not(pools: CartPools, state: str) -> None:
    moves: list[CartMove] = ["reserved", "refused", "cancelled", "expired", "confirmed"]
    for move in moves:
        cart = pools.cart(f"to-{move}", ("a", 1))
        pools.side.execute(op.OpenCart(cart, 600_000))
        for step in WAYS[state]:
            pools.side.execute(op.DecideCart(cart.home, cart.cart_id, step))
        found = pools.side.execute(op.DecideCart(cart.home, cart.cart_id, move))
        may = move in MOVES.get(state, ())
        assert (found.state, found.replay) == ((move, False) if may else (state, True))
        assert (cart.cart_id in pools.due()) is (found.state not in {"open", "reserved"})
        assert pools.side.execute(op.FinishCart(cart.home, cart.cart_id))
        assert not pools.side.execute(op.FinishCart(cart.home, cart.cart_id))
        assert pools.read(cart).is_finished
        if found.state in {"open", "reserved", "confirmed"}:  # and has no lines, and is finished all the same
            pools.torn.add(cart.cart_id)


@pytest.mark.parametrize("state", WAYS)
def test_a_cart_at_a_gated_home_moves_only_as_its_order_database_says(pools: CartPools, state: str) -> None:
    home = pools.open("G", 10, gated=True)
    moves: list[CartMove] = ["reserved", "refused", "cancelled", "expired", "confirmed"]
    for move in moves:
        cart = pools.cart(f"to-{move}", ("G", 1))
        pools.side.execute(op.OpenCart(cart, 600_000))
        for step in WAYS[state]:
            pools.side.execute(op.DecideCart(home.sku, cart.cart_id, step, stored=True))
        may = move in MOVES.get(state, ()) or (state, move) == ("open", "confirmed")
        if move in MOVES.get(state, ()):
            with pytest.raises(CartGated, match=f"cart 'to-{move}' first"):
                pools.side.execute(op.DecideCart(home.sku, cart.cart_id, move))
        found = pools.side.execute(op.DecideCart(home.sku, cart.cart_id, move, stored=True))
        assert (found.state, found.replay) == ((move, False) if may else (state, True))


def test_an_open_cart_that_has_lapsed_does_not_become_reserved(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1))
    pools.side.execute(op.OpenCart(cart, SHORT_MS))
    pools.let_lapse(cart)
    found = pools.side.execute(op.DecideCart(cart.home, "c1", "reserved"))
    assert (found.state, found.replay, found.left_ms) == ("expired", False, 0)


def test_a_line_that_somebody_ended_by_hand_is_named(pools: CartPools) -> None:
    cart, other = pools.cart("c1", ("a", 1), ("b", 2)), pools.cart("c2", ("a", 1), ("b", 2))
    pools.reserved(cart)
    pools.reserved(other)
    pools.shops["b"].confirm(cart.order_id)
    with pytest.raises(CartDiverged, match=r"'c1' is cancelled, but its line in the pool .* was confirmed") as raised:
        pools.cancel(cart)
    assert raised.value.sku == pools.sku("b")
    pools.torn.add("c1")
    assert pools.totals()["a"] == (9, 1, 0)
    pools.shops["b"].cancel(other.order_id)
    assert pools.confirm(other) == CartSettled("c2", "cancelled", replay=False, is_finished=True)
    sweep = pools.carts().finish(pools.sku("a"))
    assert [(cart_id, type(error)) for cart_id, error in sweep.failed] == [("c1", CartDiverged)]


def test_a_sweep_goes_on_past_what_it_cannot_finish_and_stops_at_its_limit(pools: CartPools) -> None:
    carts = [pools.cart(f"c{index}", ("a", 1), ("b", 1)) for index in range(6)]
    for cart in carts:
        pools.reserved(cart, hold=SHORT)
    pools.let_lapse(*carts)
    pools.shops["b"].confirm(carts[0].order_id)
    pools.torn.add("c0")
    first = pools.carts().finish(pools.sku("a"), limit=3)
    assert [one.cart_id for one in first.finished] == ["c1", "c2"]
    assert [cart_id for cart_id, _ in first.failed] == ["c0"]
    rest = pools.carts().finish(pools.sku("a"))
    assert [one.cart_id for one in rest.finished] == ["c3", "c4", "c5"]
    assert pools.totals()["b"] == (9, 0, 1)

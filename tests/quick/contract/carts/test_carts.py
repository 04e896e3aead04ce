"""Carts: reserved, confirmed, cancelled, swept."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from segmented import protocol as op
from segmented.errors import (
    AlreadySettled,
    CartDiverged,
    CartGated,
    CartMismatch,
    CartUnknown,
    InvalidInput,
    PoolMissing,
    WrongKind,
)
from segmented.keys import cart_keys, shard_keys
from segmented.models import (
    CartDecided,
    CartRefused,
    CartReserved,
    CartSettled,
    Closed,
    LimitReached,
    Order,
    SoldOut,
    UnfinishedCarts,
)
from segmented.protocol.carts import CartMove
from segmented.protocol.wire import text
from segmented.stock.audit import audit_plan
from tests.fixtures.stores import Side
from tests.support.contract.carts.carts import SHORT, SHORT_MS, CartPools
from tests.support.contract.pools.shop import verified
from tests.support.contract.shards.sharding import sharded


@pytest.fixture
def pools(side: Side) -> Iterator[CartPools]:
    """Ten units each of a, b and c."""
    made = CartPools(side)
    for letter in "abc":
        made.open(letter, 10)
    yield made
    made.check_books()


def test_a_cart_takes_all_its_lines_and_sells_them_when_confirmed(pools: CartPools) -> None:
    cart = pools.cart("c1", ("c", 3), ("a", 1), ("b", 2))
    lines = ((pools.sku("a"), 1), (pools.sku("b"), 2), (pools.sku("c"), 3))
    assert pools.reserve(cart) == CartReserved("c1", pools.sku("a"), cart.order_id, lines, replay=False)
    assert pools.totals() == {"a": (9, 1, 0), "b": (8, 2, 0), "c": (7, 3, 0)}
    assert pools.confirm(cart) == CartSettled("c1", "confirmed", replay=False, is_finished=True)
    assert pools.totals() == {"a": (9, 0, 1), "b": (8, 0, 2), "c": (7, 0, 3)}
    assert pools.read(cart).is_finished


def test_a_cart_that_is_cancelled_gives_all_its_lines_back(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart)
    assert pools.cancel(cart) == CartSettled("c1", "cancelled", replay=False, is_finished=True)
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0), "c": (10, 0, 0)}


def test_a_change_frees_the_other_units_and_the_cart_is_sold_with_what_it_keeps(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 3), ("b", 2))
    pools.reserved(cart)
    kept = [(pools.sku("b"), 2), (pools.sku("a"), 1)]
    answers = [pools.carts().change("c1", kept, home=cart.home) for _ in range(2)]
    assert [(one.lines, one.replay) for one in answers] == [(tuple(sorted(kept)), False), (tuple(sorted(kept)), True)]
    assert pools.totals() == {"a": (9, 1, 0), "b": (8, 2, 0), "c": (10, 0, 0)}
    assert pools.reserved(cart).replay
    assert pools.confirm(cart).state == "confirmed"
    assert pools.totals() == {"a": (9, 0, 1), "b": (8, 0, 2), "c": (10, 0, 0)}
    with pytest.raises(AlreadySettled, match=r"is already confirmed: its quantities are not changed$"):
        pools.carts().change("c1", kept, home=cart.home)


def test_a_change_that_is_not_possible_for_every_line_changes_none(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 3), ("b", 2))
    pools.reserved(cart)
    a, b, c = map(pools.sku, "abc")
    for lines, why in (
        ([(a, 1), (b, 3)], rf"^cart 'c1' has 2 of '{b}', and a change can only lower that, not raise it to 3: "),
        ([(a, 1)], rf"^cart 'c1' has the skus '{a}', '{b}', and a change names each of them and no other: "),
        ([(a, 1), (b, 1), (c, 1)], r"a change names each of them and no other: "),
        ([(a, 1), (b, 0)], r"must be between 1 and"),
        ([], r"^cart 'c1' has no lines$"),
    ):
        with pytest.raises(InvalidInput, match=why):
            pools.carts().change("c1", lines, home=cart.home)
    with pytest.raises(CartUnknown):
        pools.carts().change("c2", [(a, 1)], home=cart.home)
    assert pools.totals() == {"a": (7, 3, 0), "b": (8, 2, 0), "c": (10, 0, 0)}


@pytest.mark.parametrize(("short", "taken"), [("a", ["a"]), ("b", ["a", "b"]), ("c", ["a", "b", "c"])])
def test_one_line_that_does_not_fit_refuses_the_whole_cart_and_nothing_stays_taken(
    pools: CartPools, short: str, taken: list[str]
) -> None:
    cart = pools.cart("c1", *((letter, 11 if letter == short else 2) for letter in "abc"))
    refusal = SoldOut(cart.order_id, 11, 10, 0, sequence=1)
    assert pools.reserve(cart) == CartRefused("c1", pools.sku(short), refusal, replay=False)
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0), "c": (10, 0, 0)}
    kinds = {letter: [kind for kind, _ in shop.story()] for letter, shop in pools.shops.items()}
    before = [letter for letter in taken if letter != short]
    assert [letter for letter in "abc" if kinds[letter] == ["opened", "reserved", "cancelled"]] == before
    assert [letter for letter in "abc" if kinds[letter] == ["opened"]] == [
        letter for letter in "abc" if letter >= short
    ]


def test_27_lines_of_one_sku_are_summed_before_they_are_checked(pools: CartPools) -> None:
    pools.open("d", 5)
    cart = pools.cart("c1", ("d", 3), ("a", 1), ("d", 3))
    answer = pools.reserve(cart)
    assert isinstance(answer, CartRefused)
    assert (answer.sku, answer.refusal) == (pools.sku("d"), SoldOut(cart.order_id, 6, 5, 0, sequence=1))
    assert pools.totals()["d"] == (5, 0, 0)
    assert pools.totals()["a"] == (10, 0, 0)
    fits = pools.cart("c2", ("d", 3), ("d", 2))
    assert pools.reserved(fits).lines == ((pools.sku("d"), 5),)
    assert pools.totals()["d"] == (0, 5, 0)


def test_a_cart_that_ended_otherwise_raises(pools: CartPools) -> None:
    sold, back = pools.cart("sold", ("a", 1), ("b", 2)), pools.cart("back", ("a", 1))
    pools.reserved(sold)
    pools.reserved(back)
    carts = pools.carts()
    assert carts.confirm("sold", home=sold.home)
    assert carts.cancel("back", home=back.home)
    with pytest.raises(AlreadySettled, match=r"^cart 'back' is already cancelled: it cannot be confirmed$") as caught:
        carts.confirm("back", home=back.home)
    assert caught.value.state == "cancelled"
    with pytest.raises(AlreadySettled, match=r"^cart 'sold' is already confirmed: its units are not given back$"):
        carts.cancel("sold", home=sold.home)
    assert carts.cancel("back", home=back.home).replay
    assert pools.totals() == {"a": (9, 0, 1), "b": (8, 0, 2), "c": (10, 0, 0)}


def test_a_refusal_is_final_and_a_repeat_gets_it_again(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 11))
    first = pools.reserve(cart)
    assert isinstance(first, CartRefused)
    assert isinstance(first.refusal, SoldOut)
    pools.shops["b"].restock(5, "more")
    again = replace(first, refusal=replace(first.refusal, replay=True), replay=True)
    assert pools.reserve(cart) == again
    assert pools.confirm(cart) == CartSettled("c1", "refused", replay=True, is_finished=True)
    assert pools.totals()["a"] == (10, 0, 0)


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ([("a", 1), ("b", 3)], {"b": (2, 3)}),
        ([("a", 1)], {"b": (2, 0)}),
        ([("a", 1), ("b", 2), ("c", 1)], {"c": (0, 1)}),
        ([("a", 3)], {"a": (1, 3), "b": (2, 0)}),
    ],
    ids=str,
)
def test_the_same_id_with_other_content_is_an_error_that_names_each_difference(
    pools: CartPools, other: list[tuple[str, int]], differs: dict[str, tuple[int, int]]
) -> None:
    pools.reserved(pools.cart("c1", ("a", 1), ("b", 2)))
    lines = [
        f"quantity {stored} of {pools.sku(letter)!r} is stored, {given} was given"
        for letter, (stored, given) in differs.items()
    ]
    known = f"cart 'c1' in the pool {pools.sku('a')!r} exists with other content: "
    with pytest.raises(CartMismatch) as caught:
        pools.reserve(pools.cart("c1", *other))
    assert str(caught.value) == known + "; ".join(lines)
    with pytest.raises(CartMismatch) as caught:
        pools.reserve(pools.cart("c1", *other, customer_id="ann"))
    assert str(caught.value) == known + "; ".join(["no customer is stored, ann was given", *lines])
    assert pools.totals() == {"a": (9, 1, 0), "b": (8, 2, 0), "c": (10, 0, 0)}


def test_a_limit_a_closed_sale_and_a_missing_pool_refuse_the_whole_cart(pools: CartPools) -> None:
    pools.open("d", 10, limit_per_customer=2)
    limited = pools.cart("c1", ("a", 1), ("d", 3), customer_id="ann")
    reached = LimitReached(limited.order_id, 3, "ann", 2, 0)
    assert pools.reserve(limited) == CartRefused("c1", pools.sku("d"), reached, replay=False)
    assert pools.reserve(limited) == CartRefused("c1", pools.sku("d"), reached, replay=True)
    with pytest.raises(InvalidInput, match="names no customer"):
        pools.reserve(pools.cart("c2", ("a", 1), ("d", 1)))
    with pytest.raises(PoolMissing):
        pools.reserve(pools.cart("c3", ("a", 1), ("e", 1)))
    pools.shops["b"].close()
    closed = pools.cart("c4", ("a", 1), ("b", 1))
    assert pools.reserve(closed) == CartRefused("c4", pools.sku("b"), Closed(closed.order_id), replay=False)
    for cart in (pools.cart("c2", ("a", 1), ("d", 1)), pools.cart("c3", ("a", 1), ("e", 1))):
        with pytest.raises(CartUnknown):
            pools.read(cart)
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0), "c": (10, 0, 0), "d": (10, 0, 0)}


def test_a_gated_pool_takes_no_carts(pools: CartPools) -> None:
    pools.open("d", 10, gated=True)
    with pytest.raises(
        CartGated, match=r"its order database must decide cart 'c1' first; use Carts\(store, gate=gate\)$"
    ):
        pools.reserve(pools.cart("c1", ("a", 1), ("d", 1)))
    assert pools.totals()["a"] == (10, 0, 0)


def test_a_pool_that_was_opened_again_with_an_order_database_takes_no_carts(plain_redis_side: Side) -> None:
    made = CartPools(plain_redis_side)
    for letter in "ab":
        made.open(letter, 10)
    carts = made.carts()
    carts.reserve(made.cart("c1", ("a", 1), ("b", 2)))  # this process knows the pools from now on
    meta = made.shops["b"].keys.meta
    plain_redis_side.raw().hset(meta, mapping={"gated": "1", "epoch": "2"})
    verified(plain_redis_side, made.shops["b"].sku, epoch=2)
    second = made.cart("c2", ("a", 3), ("b", 4))
    with pytest.raises(CartGated):
        carts.reserve(second)
    assert made.totals() == {"a": (9, 1, 0), "b": (4, 6, 0)}
    assert (made.read(second).state, made.due()) == ("cancelled", ["c2"])
    made.shops["b"].cancel(second.order_id, voided=True)  # its database gives the units in b back
    assert [one.cart_id for one in carts.finish(made.sku("a")).finished] == ["c2"]
    assert made.totals() == {"a": (9, 1, 0), "b": (8, 2, 0)}


def test_a_cart_that_nobody_knows_is_an_error(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1))
    for ask in (pools.confirm, pools.cancel, pools.read):
        with pytest.raises(CartUnknown, match="its home is the first of its skus"):
            ask(cart)
    gone = pools.cart("c1", ("z", 1))
    for ask in (pools.confirm, pools.cancel, pools.read):
        with pytest.raises(PoolMissing):
            ask(gone)
    with pytest.raises(PoolMissing):
        pools.carts().finish(pools.sku("z"))


def test_a_line_that_is_sold_in_shards_is_refused_in_words_that_help(pools: CartPools) -> None:
    sku = pools.sku("s")
    sharded(pools.side, sku).open(stock=10, segments=2, shards=2)
    with pytest.raises(InvalidInput, match="which is sold in shards: order it beside the cart"):
        pools.reserve(pools.cart("c1", ("a", 1), ("s", 1)))
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0), "c": (10, 0, 0)}


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


def test_a_cart_that_lapsed_first_stays_first_after_it_was_decided(pools: CartPools) -> None:
    first, second = (pools.cart(cart_id, ("a", 1)) for cart_id in ("c1", "c2"))
    for cart in (first, second):
        pools.reserved(cart, hold=SHORT)
        pools.side.pass_time(0.002)
    pools.let_lapse(first, second)
    pools.side.execute(op.DecideCart(first.home, "c1", "expired"))
    assert pools.due() == ["c1", "c2"]


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


def test_a_sweep_goes_past_entries_without_a_record_and_records_that_cannot_be_read(plain_redis_side: Side) -> None:
    pools = CartPools(plain_redis_side)
    for letter in "ab":
        pools.open(letter, 10)
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart, hold=SHORT)
    pools.let_lapse(cart)
    keys, server = cart_keys(pools.sku("a")), plain_redis_side.raw()
    server.zadd(keys.unfinished, {f"stray-{number:04}": 0 for number in range(1_100)})
    server.hset(keys.carts, "stray-0007", "no record")
    carts = pools.carts()
    assert carts.unfinished(pools.sku("a"), limit=1_000).carts == ()  # it has no more room
    sweep = carts.finish(pools.sku("a"))
    assert ([settled.cart_id for settled in sweep.finished], sweep.failed) == (["c1"], ())
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0)}
    assert carts.finish(pools.sku("a")).finished == ()


def test_a_cart_that_somebody_took_from_the_unfinished_is_ended_with_its_lines(plain_redis_side: Side) -> None:
    pools = CartPools(plain_redis_side)
    for letter in "ab":
        pools.open(letter, 10)
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(cart)
    plain_redis_side.raw().zrem(cart_keys(cart.home).unfinished, "c1")
    assert pools.cancel(cart) == CartSettled("c1", "cancelled", replay=False, is_finished=True)
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0)}
    pools.check_books()


@pytest.fixture
def plain_pools(plain_redis_side: Side) -> Iterator[CartPools]:
    """Ten units each of a and b, on Redis."""
    made = CartPools(plain_redis_side)
    for letter in "ab":
        made.open(letter, 10)
    yield made
    plain_redis_side.raw().config_set("maxmemory", 0)
    made.check_books()


def keys_of(plain_pools: CartPools, letter: str) -> set[str]:
    """Return the kinds of keys that a pool has."""
    prefix = shard_keys(plain_pools.sku(letter)).meta.removesuffix("meta")
    found = plain_pools.side.raw().keys(f"{prefix}*")
    return {text(key).removeprefix(prefix) for key in found}


@pytest.mark.parametrize("kind", ["carts", "unfinished"])
def test_something_else_under_a_key_of_carts_is_refused_before_the_first_write(
    plain_pools: CartPools, kind: str
) -> None:
    keys = cart_keys(plain_pools.sku("a"))
    server, place = plain_pools.side.raw(), getattr(keys, kind)
    cart = plain_pools.cart("c1", ("a", 1), ("b", 1))
    server.set(place, "something else")
    with pytest.raises(WrongKind):
        plain_pools.reserve(cart)
    assert keys_of(plain_pools, "a") == {"meta", "stock", "free", "ledger", kind}
    server.delete(place)
    plain_pools.reserved(cart)
    kept = {key: server.dump(key) for key in (keys.carts, keys.unfinished)}
    server.set(place, "something else")
    for ask in (
        plain_pools.confirm,
        plain_pools.cancel,
        lambda cart: plain_pools.carts().unfinished(cart.home),
    ):
        with pytest.raises(WrongKind):
            ask(cart)
    for key, value in kept.items():
        if key != place:
            assert server.dump(key) == value
    assert "in the place of the pool's carts" in str(plain_pools.side.run(audit_plan(cart.home))[0].drift)
    server.restore(place, 0, kept[place] or b"", replace=True)
    assert plain_pools.totals()["a"] == (9, 1, 0)


def test_a_reservation_cut_short_and_never_taken_up_is_given_back_as_a_whole(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pools.side.execute(op.OpenCart(cart, SHORT_MS))
    pools.side.execute(op.Reserve(cart.home, Order(cart.order_id, 1), SHORT_MS))
    pools.let_lapse(cart)
    assert [one.state for one in pools.carts().finish(cart.home).finished] == ["expired"]
    assert pools.totals() == {"a": (10, 0, 0), "b": (10, 0, 0), "c": (10, 0, 0)}
    assert pools.line("b", cart) is None

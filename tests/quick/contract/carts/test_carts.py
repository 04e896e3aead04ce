"""Carts on every store in both colours: all lines or none, and a repeat gets the first answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import AlreadySettled, CartGated, CartMismatch, CartUnknown, InvalidInput, PoolMissing
from segmented.models import (
    CartDecided,
    CartRefused,
    CartReserved,
    CartSettled,
    Closed,
    Decided,
    LimitReached,
    LineRefusal,
    SoldOut,
)
from tests.support.contract.carts.carts import CartPools
from tests.support.contract.pools.shop import verified
from tests.support.contract.shards.sharding import sharded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.stores import Side


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


def test_a_repeat_gets_the_first_answer_marked_as_a_replay(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    first = pools.reserved(cart)
    assert pools.reserve(cart) == replace(first, replay=True)
    assert pools.reserve(pools.cart("c1", ("b", 1), ("a", 1), ("b", 1))) == replace(first, replay=True)
    settled = pools.confirm(cart)
    assert pools.confirm(cart) == replace(settled, replay=True)
    assert pools.cancel(cart) == replace(settled, replay=True)
    assert pools.reserve(cart) == CartDecided("c1", "confirmed", replay=True, is_finished=True)
    assert pools.totals() == {"a": (9, 0, 1), "b": (8, 0, 2), "c": (10, 0, 0)}


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


def test_an_order_and_a_cart_of_another_home_with_this_id_are_not_taken_for_it(pools: CartPools) -> None:
    pools.shops["b"].reserved("same", 2)
    pools.reserved(pools.cart("same", ("b", 2), ("c", 1)))
    pools.reserved(pools.cart("same", ("a", 1), ("b", 2)))
    assert pools.totals() == {"a": (9, 1, 0), "b": (4, 6, 0), "c": (9, 1, 0)}
    pools.cancel(pools.cart("same", ("a", 1), ("b", 2)))
    assert pools.totals() == {"a": (10, 0, 0), "b": (6, 4, 0), "c": (9, 1, 0)}


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


def test_buying_again_after_a_cancel_is_within_the_limit(pools: CartPools) -> None:
    pools.open("d", 10, limit_per_customer=2)
    first = pools.cart("c1", ("a", 1), ("d", 2), customer_id="ann")
    pools.reserved(first)
    second = pools.cart("c2", ("b", 1), ("d", 1), customer_id="ann")
    assert isinstance(pools.reserve(second), CartRefused)
    pools.cancel(first)
    pools.reserved(pools.cart("c3", ("b", 1), ("d", 2), customer_id="ann"))
    assert pools.totals()["d"] == (8, 2, 0)


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


def test_a_cart_is_not_confirmed_when_one_of_its_pools_was_gated_meanwhile(plain_redis_side: Side) -> None:
    made = CartPools(plain_redis_side)
    for letter in "ab":
        made.open(letter, 10)
    cart = made.cart("c1", ("a", 1), ("b", 2))
    made.reserved(cart)
    plain_redis_side.raw().hset(made.shops["b"].keys.meta, "gated", "1")
    verified(plain_redis_side, made.shops["b"].sku)
    with pytest.raises(CartGated, match="its order database must decide cart 'c1' first"):
        made.confirm(cart)
    assert (made.read(cart).state, made.totals()) == ("reserved", {"a": (9, 1, 0), "b": (8, 2, 0)})
    plain_redis_side.raw().hset(made.shops["b"].keys.meta, "gated", "0")
    assert made.confirm(cart).state == "confirmed"
    made.check_books()


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


def test_one_answer_for_each_kind_of_refusal_comes_back_as_it_was_kept(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1))
    pools.side.execute(op.OpenCart(cart, 600_000))
    kept = LineRefusal('ü\n\t"{%}', Decided(cart.order_id, "cancelled", 3, -1, None, 17, replay=True))
    decided = pools.side.execute(op.DecideCart(cart.home, "c1", "refused", kept))
    assert decided.refusal == kept
    assert pools.read(cart).refusal == kept


def test_any_text_may_be_a_sku_of_a_cart(pools: CartPools) -> None:
    for name in ("{", "}{", "%7B", "a b", "ü" * 50):
        pools.open(name, 5)
        cart = pools.cart(f"ü {{%}} {name}", (name, 2), ("a", 1), customer_id="ann é'\"\\")
        pools.reserved(cart)
        assert pools.confirm(cart).state == "confirmed"
        assert pools.totals()[name] == (3, 0, 2)

"""The scripts of carts on a real server: their keys, a full memory, and something else under our keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import StoreRefused, WrongKind
from segmented.keys import cart_keys, shard_keys
from segmented.models import Cart
from segmented.protocol.wire import text
from segmented.stock.audit import audit_plan
from tests.contract.carts.carts import SHORT, SHORT_MS, Market

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.stores import Side


@pytest.fixture
def market(plain_redis_side: Side) -> Iterator[Market]:
    """Ten units each of a and b, on Redis."""
    made = Market(plain_redis_side)
    for letter in "ab":
        made.open(letter, 10)
    yield made
    plain_redis_side.raw().config_set("maxmemory", 0)
    made.check_books()


def keys_of(market: Market, letter: str) -> set[str]:
    """Return the kinds of keys that a pool has."""
    prefix = shard_keys(market.sku(letter)).meta.removesuffix("meta")
    found = market.side.raw().keys(f"{prefix}*")
    return {text(key).removeprefix(prefix) for key in found}


def test_a_cart_is_one_record_at_its_home_and_an_order_in_each_pool(market: Market) -> None:
    cart = market.cart("c1", ("a", 1), ("b", 2))
    pool = {"meta", "stock", "free", "ledger", "orders", "holds"}
    market.reserved(cart)
    assert keys_of(market, "a") == pool | {"carts", "unfinished"}
    assert keys_of(market, "b") == pool
    market.confirm(cart)
    assert keys_of(market, "a") == pool - {"holds"} | {"carts"}
    assert keys_of(market, "b") == pool - {"holds"}


def test_without_memory_no_cart_is_opened_but_what_is_reserved_is_confirmed_cancelled_and_swept(market: Market) -> None:
    carts = [market.cart(f"c{index}", ("a", 1), ("b", 1)) for index in range(3)]
    for index, cart in enumerate(carts):
        market.reserved(cart, hold=SHORT if index == 2 else 600)
    market.let_lapse(carts[2])
    market.side.raw().config_set("maxmemory", 1)
    with pytest.raises(StoreRefused, match="maxmemory"):
        market.reserve(market.cart("c3", ("a", 1)))
    assert market.confirm(carts[0]).state == "confirmed"
    assert market.cancel(carts[1]).state == "cancelled"
    assert [one.state for one in market.carts().finish(market.sku("a")).finished] == ["expired"]
    assert market.totals() == {"a": (9, 0, 1), "b": (9, 0, 1)}


def test_a_reservation_that_runs_out_of_memory_half_way_is_given_back_by_a_sweep(market: Market) -> None:
    cart = market.cart("c1", ("a", 1), ("b", 1))
    market.side.execute(op.OpenCart(cart, SHORT_MS))
    market.side.raw().config_set("maxmemory", 1)
    with pytest.raises(StoreRefused, match="maxmemory"):
        market.reserve(cart)
    market.side.raw().config_set("maxmemory", 0)
    market.let_lapse(cart)
    assert [one.state for one in market.carts().finish(cart.home).finished] == ["expired"]


@pytest.mark.parametrize("kind", ["carts", "unfinished"])
def test_something_else_under_a_key_of_carts_is_refused_before_the_first_write(market: Market, kind: str) -> None:
    keys = cart_keys(market.sku("a"))
    server, place = market.side.raw(), getattr(keys, kind)
    cart = market.cart("c1", ("a", 1), ("b", 1))
    server.set(place, "something else")
    with pytest.raises(WrongKind):
        market.reserve(cart)
    assert keys_of(market, "a") == {"meta", "stock", "free", "ledger", kind}
    server.delete(place)
    market.reserved(cart)
    kept = {key: server.dump(key) for key in (keys.carts, keys.unfinished)}
    server.set(place, "something else")
    for ask in (market.confirm, market.cancel, lambda cart: market.carts().unfinished(cart.home)):
        with pytest.raises(WrongKind):
            ask(cart)
    for key, value in kept.items():
        if key != place:
            assert server.dump(key) == value
    assert "in the place of the pool's carts" in str(market.side.run(audit_plan(cart.home))[0].drift)
    server.restore(place, 0, kept[place] or b"", replace=True)
    assert market.totals()["a"] == (9, 1, 0)


def test_a_sku_of_braces_keeps_its_carts_in_its_own_slot(market: Market) -> None:
    name = "}{%"
    market.open(name, 5)
    cart = Cart("c", [(market.sku(name), 1)])
    market.reserved(cart)
    assert keys_of(market, name) >= {"carts", "unfinished"}
    assert market.confirm(cart).state == "confirmed"

"""The scripts of carts on a real server: their keys, a full memory, and something else under our keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import StoreRefused, WrongKind
from segmented.keys import cart_keys, shard_keys
from segmented.protocol.wire import text
from segmented.stock.audit import audit_plan
from tests.support.contract.carts.carts import SHORT, CartPools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.stores import Side


@pytest.fixture
def pools(plain_redis_side: Side) -> Iterator[CartPools]:
    """Ten units each of a and b, on Redis."""
    made = CartPools(plain_redis_side)
    for letter in "ab":
        made.open(letter, 10)
    yield made
    plain_redis_side.raw().config_set("maxmemory", 0)
    made.check_books()


def keys_of(pools: CartPools, letter: str) -> set[str]:
    """Return the kinds of keys that a pool has."""
    prefix = shard_keys(pools.sku(letter)).meta.removesuffix("meta")
    found = pools.side.raw().keys(f"{prefix}*")
    return {text(key).removeprefix(prefix) for key in found}


def test_a_cart_is_one_record_at_its_home_and_an_order_in_each_pool(pools: CartPools) -> None:
    cart = pools.cart("c1", ("a", 1), ("b", 2))
    pool = {"meta", "stock", "free", "ledger", "orders", "holds"}
    pools.reserved(cart)
    assert keys_of(pools, "a") == pool | {"carts", "unfinished"}
    assert keys_of(pools, "b") == pool
    pools.confirm(cart)
    assert keys_of(pools, "a") == pool - {"holds"} | {"carts"}
    assert keys_of(pools, "b") == pool - {"holds"}


def test_without_memory_no_cart_opens_but_reservations_end_in_every_way(pools: CartPools) -> None:
    """What is reserved can be confirmed, cancelled and swept."""
    carts = [pools.cart(f"c{index}", ("a", 1), ("b", 1)) for index in range(3)]
    for index, cart in enumerate(carts):
        pools.reserved(cart, hold=SHORT if index == 2 else 600)
    pools.let_lapse(carts[2])
    pools.side.raw().config_set("maxmemory", 1)
    with pytest.raises(StoreRefused, match="maxmemory"):
        pools.reserve(pools.cart("c3", ("a", 1)))
    assert pools.confirm(carts[0]).state == "confirmed"
    assert pools.cancel(carts[1]).state == "cancelled"
    assert [one.state for one in pools.carts().finish(pools.sku("a")).finished] == ["expired"]
    assert pools.totals() == {"a": (9, 0, 1), "b": (9, 0, 1)}


@pytest.mark.parametrize("kind", ["carts", "unfinished"])
def test_something_else_under_a_key_of_carts_is_refused_before_the_first_write(pools: CartPools, kind: str) -> None:
    keys = cart_keys(pools.sku("a"))
    server, place = pools.side.raw(), getattr(keys, kind)
    cart = pools.cart("c1", ("a", 1), ("b", 1))
    server.set(place, "something else")
    with pytest.raises(WrongKind):
        pools.reserve(cart)
    assert keys_of(pools, "a") == {"meta", "stock", "free", "ledger", kind}
    server.delete(place)
    pools.reserved(cart)
    kept = {key: server.dump(key) for key in (keys.carts, keys.unfinished)}
    server.set(place, "something else")
    for ask in (pools.confirm, pools.cancel, lambda cart: pools.carts().unfinished(cart.home)):
        with pytest.raises(WrongKind):
            ask(cart)
    for key, value in kept.items():
        if key != place:
            assert server.dump(key) == value
    assert "in the place of the pool's carts" in str(pools.side.run(audit_plan(cart.home))[0].drift)
    server.restore(place, 0, kept[place] or b"", replace=True)
    assert pools.totals()["a"] == (9, 1, 0)

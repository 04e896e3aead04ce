"""What somebody else writes to the keys of carts: the audit names the cart and its orders, and never raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import protocol as op
from segmented.keys import cart_keys, shard_keys
from segmented.stock.audit import audit_plan
from tests.support.contract.carts.carts import CartPools

if TYPE_CHECKING:
    import redis

    from segmented.keys import CartKeys
    from segmented.models import Cart
    from tests.fixtures.stores import Side


@pytest.fixture
def pools(plain_redis_side: Side) -> CartPools:
    """Ten units each of a and b."""
    made = CartPools(plain_redis_side)
    for letter in "ab":
        made.open(letter, 10)
    return made


@pytest.fixture
def cart(pools: CartPools) -> Cart:
    """A cart that is reserved."""
    made = pools.cart("c1", ("a", 1), ("b", 2))
    pools.reserved(made)
    return made


@pytest.fixture
def keys(pools: CartPools) -> CartKeys:
    return cart_keys(pools.sku("a"))


@pytest.fixture
def server(plain_redis_side: Side) -> redis.Redis:
    return plain_redis_side.raw()


def named(pools: CartPools, letter: str) -> list[str]:
    report = pools.side.run(audit_plan(pools.sku(letter)))[0]
    return [str(drift).replace(pools.sku(""), "") for drift in report.drift]


UNREADABLE: Final[tuple[str | bytes, ...]] = (
    *("", "abc", "r\t1\t", "r\t1\t\n", "q\t1\t\n[null]", "r\tx\t\n[null]", "r\t1\t\n{}", "r\t1\t\n5", "r\t1\t\n[5]"),
    *("r\t1\t\n[null]", 'r\t1\t\n[null,["a",true]]', 'r\t1\t\n[null,["a",1]]', "r\t1\t\n" + "[" * 100_000, b"\xff"),
)


def test_a_record_that_cannot_be_read_is_named(
    pools: CartPools, cart: Cart, keys: CartKeys, server: redis.Redis
) -> None:
    refusals = ("x", "[]", '["a","Nobody",{}]', '["a","SoldOut",{"x":1}]')
    for value in (*UNREADABLE, *(f"f\t1\t{refusal}\n{cart.content}" for refusal in refusals)):
        server.hset(keys.carts, "c1", value)
        assert named(pools, "a") == ["foreign write: the record of cart 'c1' cannot be read: put it right by hand"]
        assert named(pools, "b") == []


def test_an_unfinished_cart_without_a_record_is_named(pools: CartPools, keys: CartKeys, server: redis.Redis) -> None:
    server.zadd(keys.unfinished, {"stray": 1})
    told = ["lost: cart 'stray' is to be finished, but has no record: remove it from `unfinished`"]
    assert named(pools, "a") == told
    server.zrem(keys.unfinished, "stray")
    assert named(pools, "a") == []


def test_a_lost_record_leaves_a_name_and_pinned_orders(
    pools: CartPools, cart: Cart, keys: CartKeys, server: redis.Redis
) -> None:
    for letter in "ab":
        server.zadd(shard_keys(pools.sku(letter)).holds, {cart.order_id: 253_402_300_799_000})
    server.hdel(keys.carts, "c1")
    why = "it is on hold forever, but its record names no cart: finish its cart if it has one, or end it"
    nameless = f"leaked hold: order {cart.order_id}: {why}"
    assert named(pools, "a") == [
        "lost: cart 'c1' is to be finished, but has no record: remove it from `unfinished`",
        nameless,
    ]
    assert named(pools, "b") == [nameless]


def test_a_decision_that_was_changed_is_named(
    pools: CartPools, cart: Cart, keys: CartKeys, server: redis.Redis
) -> None:
    pools.confirm(cart)
    record = str(server.hget(keys.carts, "c1"))
    server.hset(keys.carts, "c1", "x" + record[1:])
    assert named(pools, "a") == [
        f"torn cart: order {cart.order_id}: cart 'c1' is cancelled, but its order in pool '{letter}' was confirmed, so "
        "those units are sold"
        for letter in "ab"
    ]
    server.hset(keys.carts, "c1", record)
    assert named(pools, "a") == []


def test_a_lost_order_is_named_once_in_its_own_pool_and_as_a_torn_cart_from_another(
    pools: CartPools, cart: Cart, server: redis.Redis
) -> None:
    for letter in "ab":
        server.hdel(shard_keys(pools.sku(letter)).orders, cart.order_id)
    kinds = [drift.kind for drift in pools.side.run(audit_plan(cart.home))[0].drift]
    assert kinds == ["lost", "torn cart"]


@pytest.mark.parametrize("kind", ["carts", "unfinished"])
def test_something_else_in_the_place_of_carts_is_named(
    pools: CartPools, keys: CartKeys, server: redis.Redis, kind: str
) -> None:
    server.set(getattr(keys, kind), "something else")
    told = "foreign write: something else is in the place of the pool's carts, so none can be read"
    assert named(pools, "a") == [told]


def test_a_pinned_order_lost_and_rewritten_names_its_cart_once_that_is_finished(
    pools: CartPools, cart: Cart, server: redis.Redis
) -> None:
    for letter in "ab":
        pools.side.execute(op.PinOrder(pools.sku(letter), cart.order_id, cart.home))
    pool = pools.side.pool(pools.sku("b"))
    pool.reserve("other")  # a pool that lost all its records is frozen
    server.hdel(shard_keys(pools.sku("b")).orders, cart.order_id)
    done = pool.repair(pool.audit(), yes=True)
    assert [(repair.kind, repair.is_done) for repair in done.repairs] == [("lost", True)]
    assert [(drift.kind, drift.about) for drift in done.after.drift] == [("leaked hold", "cart")]
    assert named(pools, "a") == []
    assert pools.confirm(cart).is_finished
    assert named(pools, "b") == []

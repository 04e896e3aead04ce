"""What somebody else wrote among a pool's carts stops neither a sweep nor a list; the audit names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.keys import cart_keys
from segmented.models import CartSettled
from tests.support.contract.carts.carts import SHORT, CartPools

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


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

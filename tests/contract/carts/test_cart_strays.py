"""What somebody else wrote among a pool's carts stops neither a sweep nor a list; the audit names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.keys import cart_keys
from segmented.models import CartSettled
from tests.contract.carts.carts import SHORT, Market

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


def test_a_sweep_goes_past_entries_without_a_record_and_records_that_cannot_be_read(plain_redis_side: Side) -> None:
    market = Market(plain_redis_side)
    for letter in "ab":
        market.open(letter, 10)
    cart = market.cart("c1", ("a", 1), ("b", 2))
    market.reserved(cart, hold=SHORT)
    market.let_lapse(cart)
    keys, server = cart_keys(market.sku("a")), plain_redis_side.raw()
    server.zadd(keys.unfinished, {f"stray-{number:04}": 0 for number in range(1_100)})
    server.hset(keys.carts, "stray-0007", "no record")
    carts = market.carts()
    assert carts.unfinished(market.sku("a"), limit=1_000).carts == ()  # it has no more room
    sweep = carts.finish(market.sku("a"))
    assert ([settled.cart_id for settled in sweep.finished], sweep.failed) == (["c1"], ())
    assert market.totals() == {"a": (10, 0, 0), "b": (10, 0, 0)}
    assert carts.finish(market.sku("a")).finished == ()


def test_a_cart_that_somebody_took_from_the_unfinished_is_ended_with_its_lines(plain_redis_side: Side) -> None:
    market = Market(plain_redis_side)
    for letter in "ab":
        market.open(letter, 10)
    cart = market.cart("c1", ("a", 1), ("b", 2))
    market.reserved(cart)
    plain_redis_side.raw().zrem(cart_keys(cart.home).unfinished, "c1")
    assert market.cancel(cart) == CartSettled("c1", "cancelled", replay=False, is_finished=True)
    assert market.totals() == {"a": (10, 0, 0), "b": (10, 0, 0)}
    market.check_books()

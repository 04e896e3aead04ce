"""Taking from a pool in shards: as from one pool, whatever shard has the units; and an exact refusal when none have."""

from collections.abc import Iterator
from typing import Any

import pytest

from segmented.errors import InvalidInput, OrderMismatch
from segmented.models import Decided, LimitReached, Order, Reserved, Settled, SoldOut
from segmented.stock import ShardedPool
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import Shop
from tests.support.contract.shards.sharding import (
    SHARDS,
    STOCK,
    at_home_in,
    check_all,
    refused,
    sharded,
    shards_of,
    taken,
)


@pytest.fixture
def limited(side: Side) -> Iterator[ShardedPool]:
    """The same with a limit of three units a customer."""
    made = sharded(side, side.name())
    made.open(stock=STOCK, segments=7, shards=SHARDS, limit_per_customer=3)
    yield made
    check_all(made)


def free_of_each(side: Side, pool: ShardedPool) -> list[int]:
    return [Shop(side, shard).state().available for shard in shards_of(side, pool.sku)]


# --- orders of every size, down to the last unit ---


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_orders_of_one_size_get_everything_down_to_the_last_unit(side: Side, shards: int) -> None:
    for size in (1, 2, 3, 7, 20):
        pool = sharded(side, side.name())
        pool.open(stock=20, segments=7, shards=shards)
        assert [taken(pool.reserve(f"o{index}", quantity=size)) for index in range(20 // size)] == [size] * (20 // size)
        rest = 20 % size
        assert refused(pool.reserve("no more", quantity=size)) == (rest, 20 - rest), size
        if rest:
            assert taken(pool.reserve("rest", quantity=rest)) == rest
        assert refused(pool.reserve("not one")) == (0, 20), size
        check_all(pool)


def test_grants_of_every_size_get_everything(side: Side, pool: ShardedPool) -> None:
    for index, size in enumerate((1, 5, 2, 3)):
        grant: Any = pool.grant(f"o{index}", quantity=size, timeout=0, fair=index == 1, keep_refusal=index == 3)
        assert grant.quantity == size
        assert grant.confirm().quantity == size
    assert refused(pool.grant("no more", timeout=0)) == (0, 0)
    assert sum(free_of_each(side, pool)) == 0
    assert pool.state().confirmed == STOCK


def test_what_all_together_do_not_have_is_refused_with_the_totals_of_all(side: Side, pool: ShardedPool) -> None:
    pool.reserve("a", quantity=2)
    pool.confirm("a")
    pool.reserve("b", quantity=3)
    before = free_of_each(side, pool)
    for index in range(SHARDS):
        order_id = at_home_in(index, SHARDS)[0]
        answer = pool.reserve(order_id, quantity=7)
        assert refused(answer) == (6, 3)
        assert isinstance(answer, SoldOut)
        assert (answer.order_id, answer.quantity, answer.replay, answer.by_mark) == (order_id, 7, False, False)
    assert free_of_each(side, pool) == before != [6, 0, 0]  # a refusal brings nothing anywhere
    assert taken(pool.reserve("c", quantity=6)) == 6


def test_a_partial_order_gets_what_all_together_have(pool: ShardedPool) -> None:
    assert taken(pool.reserve("a", quantity=50, partial=True)) == STOCK
    assert refused(pool.reserve("b", quantity=2, partial=True)) == (0, STOCK)
    pool.cancel("a")
    grant: Any = pool.grant("c", quantity=50, partial=True, timeout=0)
    assert grant.quantity == STOCK
    grant.cancel()
    assert taken(pool.reserve_many([Order("d", 50)], partial=True)[0]) == STOCK


def test_a_partial_order_within_a_limit_gets_what_is_left_of_both(limited: ShardedPool) -> None:
    assert taken(limited.reserve(Order("a", 5, "ann"), partial=True)) == 3
    assert taken(limited.reserve(Order("b", 1, "bob"))) == 1
    assert taken(limited.reserve(Order("c", 5, "bob"), partial=True)) == 2
    for customer in ("cid", "dan"):
        assert taken(limited.reserve(Order(f"of {customer}", 2, customer))) == 2
    assert taken(limited.reserve(Order("e", 3, "eve"), partial=True)) == 1
    assert isinstance(limited.reserve(Order("f", 3, "ann"), partial=True), LimitReached)
    assert refused(limited.reserve(Order("g", 3, "dan"), partial=True)) == (0, STOCK)


# --- repeats ---


def test_a_partial_grant_within_a_limit_is_refused_without_units_and_that_is_kept(limited: ShardedPool) -> None:
    limited.reserve(Order("a", 2, "ann"))
    for customer in ("bob", "cid", "dan"):
        assert taken(limited.reserve(Order(f"of {customer}", 3, customer))) == 3
    kept = limited.grant(Order("b", 3, "ann"), partial=True, keep_refusal=True, timeout=0)
    assert refused(kept) == (0, STOCK)
    limited.cancel("of bob", customer_id="bob")
    again = limited.grant(Order("b", 3, "ann"), partial=True, keep_refusal=True, timeout=0)
    assert isinstance(again, SoldOut)
    assert again.replay


# --- many at once ---


def test_a_repeated_id_that_was_served_from_other_shards_is_a_repeat(pool: ShardedPool) -> None:
    big, content = Order("big", 9), "order 'big' exists with other content: quantity 9 is stored, 8 was given"
    answers = pool.reserve_many([big, Order("x", 9), big, Order("x", 9), Order("big", 8), Order("y", 1), Order("y", 1)])
    assert [taken(answers[index]) for index in (0, 2, 5, 6)] == [9, 9, 1, 1]
    assert [answer.replay for answer in answers if isinstance(answer, Reserved)] == [False, True, False, True]
    assert all(isinstance(answers[index], SoldOut) for index in (1, 3))
    assert isinstance(answers[4], OrderMismatch)
    assert str(answers[4]) == content
    pool.confirm("y")
    assert [type(one) for one in pool.reserve_many([Order("y", 1), Order("z", 1)])] == [Decided, Reserved]


# --- customers ---


def test_a_customer_s_limit_holds_over_all_orders_and_ends_with_a_cancellation(limited: ShardedPool) -> None:
    assert [taken(limited.reserve(Order(f"o{index}", 1, "ann"))) for index in range(3)] == [1, 1, 1]
    answer = limited.reserve(Order("o3", 1, "ann"))
    assert isinstance(answer, LimitReached)
    assert (answer.limit, answer.taken) == (3, 3)
    limited.cancel("o1", customer_id="ann")
    assert taken(limited.reserve(Order("o3", 1, "ann"))) == 1
    limited.confirm("o3", customer_id="ann")
    late, nameless, other = limited.reserve_many([Order("o4", 1, "ann"), Order("b", 1), Order("c", 1, "cid")])
    assert (type(late), type(nameless), taken(other)) == (LimitReached, InvalidInput, 1)
    answers = limited.confirm_many([Order("o0", 1, "ann"), Order("o2", 1, "ann")])
    assert [answer.state for answer in answers if isinstance(answer, Settled)] == ["confirmed"] * 2


# --- changes of the pool ---


def test_units_are_taken_out_of_several_shards_once_for_each_id(side: Side, pool: ShardedPool) -> None:
    assert [pool.withdraw(9, withdraw_id="w").replay for _ in range(2)] == [False, True]  # type: ignore[union-attr]  # there are enough
    assert sum(free_of_each(side, pool)) == 2
    few = pool.withdraw(3, withdraw_id="v")
    assert (type(few).__name__, few.units, few.available) == ("TooFew", 3, 2)
    assert pool.withdraw(2, withdraw_id="u").units == 2
    assert pool.state().withdrawn == STOCK
    assert refused(pool.reserve("a")) == (0, 0)


def test_lapsed_holds_of_every_shard_come_back(side: Side) -> None:
    short, pool = sharded(side, (sku := side.name()), ttl=0.02, hold=0.02), sharded(side, sku)
    short.open(stock=360, segments=7, shards=SHARDS)
    short.reserve_many([Order(f"o{index}", 1) for index in range(120)])
    side.pass_time(0.035)
    assert (len(pool.expire(limit=5)), pool.state().available) == (5, 245)
    assert (len(pool.expire()), pool.expire()) == (115, ())
    short.reserve_many([Order(f"p{index}", 1) for index in range(120)])
    side.pass_time(0.035)
    assert taken(pool.reserve("all", quantity=360)) == 360  # an order is served with those that nobody expired
    check_all(pool)

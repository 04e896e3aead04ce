"""Submitting to a pool in shards: units, record and outbox in one step at the home, and workers shard by shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderMismatch, SegmentedError
from segmented.keys import OUTBOXES
from segmented.models import Closed, LimitReached, Order, Settled, SoldOut
from segmented.plans import Join
from segmented.stock import AsyncShardedPool, Outbox
from segmented.stores.memory import AsyncMemoryStore
from tests.support.contract.interposed import interposed, process_of
from tests.support.contract.shards.sharded_submitting import AFTER, LONG_MS, SHARDS, STOCK, Shop, worked
from tests.support.contract.shards.sharding import at_home_in, check_all, sharded, taken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.plans import Plan
    from tests.fixtures.stores import Side


@pytest.fixture
def shop(side: Side) -> Iterator[Shop]:
    made = Shop(side)
    yield made
    check_all(made.pool)


# --- accepting ---


def test_orders_are_in_the_outbox_of_their_home_and_a_message_has_those_of_one_shard(shop: Shop) -> None:
    ids = [at_home_in(number, SHARDS)[index] for index in range(2) for number in range(SHARDS)]
    handles = shop.pool.submit_many(Order(order_id, 1) for order_id in ids)
    assert [shop.refreshed(handle) for handle in handles] == ["reserved"] * 6
    assert [handle.order_id for handle in handles if not isinstance(handle, SegmentedError)] == ids
    assert shop.waiting() == [2, 2, 2]
    assert shop.publisher.messages() == [
        ("".join(shard), [ids[number], ids[number + 3]]) for number, shard in enumerate(shop.shards)
    ]
    for number in range(SHARDS):
        found = shop.submitted(ids[number], number)
        assert (found.state, found.is_in_outbox) == ("reserved", True)
    assert shop.pool.state().reserved == 6


def test_what_no_shard_has_alone_is_brought_together_and_in_the_outbox(shop: Shop) -> None:
    order_id = at_home_in(1, SHARDS)[0]
    handle = shop.pool.submit(order_id, quantity=9)
    assert handle.state == "reserved"
    found = shop.submitted(order_id, 1)
    assert found.record is not None
    assert (found.record.quantity, found.is_in_outbox, shop.waiting()) == (9, True, [0, 1, 0])
    assert shop.publisher.messages() == [("".join(shop.shards[1]), [order_id])]


@pytest.mark.parametrize("size", [1, 3])
def test_everything_is_sold_down_to_the_last_unit_and_then_refused_rightly(shop: Shop, size: int) -> None:
    handles = [shop.pool.submit(f"o{index}", quantity=size) for index in range(STOCK // size + 2)]
    assert [handle.state for handle in handles] == ["reserved"] * (STOCK // size) + ["refused"] * 2
    for handle in handles[-2:]:
        assert isinstance(handle.outcome, SoldOut)
        assert (handle.outcome.available, handle.outcome.reserved) == (STOCK % size, STOCK - STOCK % size)
        assert shop.refreshed(handle) == "refused"
    assert [shop.pool.submit(f"rest{index}").state for index in range(STOCK % size)] == ["reserved"] * (STOCK % size)
    assert sum(shop.waiting()) == STOCK // size + STOCK % size
    shop.pool.close()
    assert isinstance(shop.pool.submit("late").outcome, Closed)


@worked
def test_a_worker_who_decides_is_refused_when_the_pool_is_made(side: Side) -> None:
    message = (
        r"^decides='in the worker' is not supported for 'x' in shards: a worker decides in one shard, and would refuse"
    )
    with pytest.raises(InvalidInput, match=message):
        sharded(side, "x", outbox=Outbox(decides="in the worker"))
    with pytest.raises(InvalidInput, match=message):
        AsyncShardedPool(AsyncMemoryStore(), "x", outbox=Outbox(decides="in the worker"))


def test_the_shards_are_noted_by_each_process(plain_redis_side: Side) -> None:
    shop, raw = Shop(plain_redis_side), plain_redis_side.raw()
    names = ["".join(shard) for shard in shop.shards]
    shop.pool.submit("a")
    assert raw.smismember(OUTBOXES, names) == [1, 1, 1]
    raw.srem(OUTBOXES, *names)
    shop.process().submit("c")
    assert raw.smismember(OUTBOXES, names) == [1, 1, 1]


def test_without_a_publisher_nobody_is_told_and_the_sweep_does_it(shop: Shop) -> None:
    sharded(shop.side, shop.sku, outbox=Outbox(publish_after=AFTER)).submit("a")
    assert sum(shop.waiting()) == 1
    assert shop.publisher.messages() == []
    shop.side.pass_time(2 * AFTER)
    assert shop.sweep() == 1
    assert [ids for _, ids in shop.publisher.messages()] == [["a"]]


# --- repeats ---


def test_a_repeat_has_its_units_once_and_nobody_is_told_again(shop: Shop) -> None:
    shop.pool.submit("a", quantity=9)
    shop.publisher.messages()
    for pool in (shop.pool, shop.process()):
        assert pool.submit("a", quantity=9).state == "reserved"
    assert (shop.pool.state().reserved, sum(shop.waiting()), shop.publisher.messages()) == (9, 1, [])
    pool = shop.process()
    with pytest.raises(OrderMismatch, match="quantity 9 is stored, 8 was given"):
        pool.submit("a", quantity=8)
    first, second, third = pool.submit_many([Order("a", 2), Order("b", 2), Order("b", 2)])
    assert isinstance(first, OrderMismatch)
    assert [shop.refreshed(handle) for handle in (second, third)] == ["reserved", "reserved"]
    assert [ids for _, ids in shop.publisher.messages()] == [["b"]]
    assert shop.pool.state().reserved == STOCK


def test_a_repeat_of_a_finished_order_gets_its_fate_and_so_does_a_handle(shop: Shop) -> None:
    order_id = at_home_in(1, SHARDS)[0]
    shop.pool.submit(order_id, quantity=9)
    shop.pool.confirm(order_id)
    assert sum(shop.waiting()) == 0
    again = shop.process().submit(order_id, quantity=9)
    assert isinstance(again.outcome, Settled)
    assert (again.state, again.outcome.quantity, sum(shop.waiting())) == ("confirmed", 9, 0)
    handle = shop.process().handle(order_id)
    assert (handle.state, shop.refreshed(handle), handle.sku) == ("unread", "confirmed", shop.shards[1])
    with pytest.raises(InvalidInput, match="order id"):
        shop.pool.handle("")


# --- with a limit per customer, and with a mark ---


def test_a_customer_s_shard_has_the_order_and_the_limit_holds(side: Side) -> None:
    shop = Shop(side, limit=3)
    taken_, refused, nobody = shop.pool.submit_many([Order("a", 2, "ann"), Order("b", 2, "ann"), Order("c", 1)])
    assert isinstance(nobody, InvalidInput)
    assert not isinstance(refused, SegmentedError)
    assert isinstance(refused.outcome, LimitReached)
    assert shop.refreshed(taken_) == "reserved"
    with pytest.raises(InvalidInput, match="name the customer of order 'a'"):
        shop.pool.handle("a")
    assert shop.refreshed(shop.pool.handle("a", customer_id="ann")) == "reserved"
    check_all(shop.pool)


def test_the_mark_refuses_new_orders_and_no_repeat(side: Side) -> None:
    shop = Shop(side, mark=60.0)
    shop.pool.submit("a", quantity=10)
    assert shop.pool.submit("b", quantity=2).state == "refused"
    late, again, one = shop.pool.submit_many([Order("c", 2), Order("a", 10), Order("d", 1)])
    assert not isinstance(late, SegmentedError)
    assert isinstance(late.outcome, SoldOut)
    assert (late.outcome.by_mark, shop.pool.refused_by_mark) == (True, 1)
    assert [shop.refreshed(handle) for handle in (again, one)] == ["reserved", "reserved"]
    shop.pool.cancel("a")
    assert shop.pool.submit("c", quantity=2).state == "reserved"
    assert sum(shop.waiting()) == 2
    check_all(shop.pool)


# --- while others take, and units travel ---


def submitting(shop: Shop, *orders: Order) -> Plan[Any]:
    operation = op.ReserveMany(shop.sku, orders, LONG_MS, publish_after_ms=LONG_MS)
    return process_of(shop.side, shop.sku).submit(operation)


def is_taking(effect: Any) -> bool:  # noqa: ANN401  # of any answer
    return isinstance(effect, op.ReserveMany)


def is_joining(effect: Any) -> bool:  # noqa: ANN401  # of any answer
    """Is it about to look at all shards, after its home was short?"""
    return isinstance(effect, Join)


def test_what_others_take_while_units_travel_home_is_brought_again(shop: Shop) -> None:
    first, *ids = at_home_in(0, SHARDS)

    def take_at_home() -> Plan[None]:
        other = process_of(shop.side, shop.sku)
        answer = yield from other.reserve(op.Reserve(shop.sku, Order(ids.pop(0), 1), LONG_MS))
        assert taken(answer) == 1

    plan = interposed(submitting(shop, Order(first, 8)), *[(is_taking, take_at_home)] * 3)
    ((home, answer),) = shop.side.run(plan)
    assert (home, taken(answer)) == (shop.shards[0], 8)
    assert (shop.waiting(), shop.pool.state().reserved) == ([1, 0, 0], 11)


def test_units_that_are_gone_when_they_are_home_are_refused_and_stand_in_no_outbox(shop: Shop) -> None:
    first, *ids = at_home_in(0, SHARDS)

    def take_at_home() -> Plan[None]:
        other = process_of(shop.side, shop.sku)
        assert taken((yield from other.reserve(op.Reserve(shop.sku, Order(ids.pop(0), 4), LONG_MS)))) == 4

    plan = interposed(submitting(shop, Order(first, 8)), (is_taking, take_at_home))
    ((_, answer),) = shop.side.run(plan)
    assert isinstance(answer, SoldOut)
    assert (answer.available, answer.reserved) == (7, 4)
    assert (shop.waiting(), shop.submitted(first, 0).state) == ([0, 0, 0], "unknown")


def test_a_twin_that_is_quicker_has_the_units_once(shop: Shop) -> None:
    order = Order(at_home_in(0, SHARDS)[0], 8)

    def twin() -> Plan[None]:
        ((_, answer),) = yield from submitting(shop, order)
        assert taken(answer) == 8

    ((_, answer),) = shop.side.run(interposed(submitting(shop, order), (is_joining, twin)))
    assert (taken(answer), answer.replay) == (8, True)
    assert (shop.waiting(), shop.pool.state().reserved) == ([1, 0, 0], 8)

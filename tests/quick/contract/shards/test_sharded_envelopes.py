"""Workers of a pool in shards: envelopes, sweep and dead letters are those of each shard."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolMissing, ShardVanished
from segmented.models import Order, Settled, checked_pool_name
from segmented.models.submitted import Dead, Replayed
from segmented.orders import WorkTerms, take_envelope
from segmented.stock import pool_of
from segmented.stock.outbox import dead_plan
from tests.support.contract.shards.sharded_submitting import AFTER, LONG_MS, SHARDS, STOCK, Shop, worked
from tests.support.contract.shards.sharding import at_home_in, check_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.stores import Side


@pytest.fixture
def shop(side: Side) -> Iterator[Shop]:
    made = Shop(side)
    yield made
    check_all(made.pool)


@worked
def test_workers_take_the_envelopes_of_every_shard(shop: Shop) -> None:
    handles = [shop.pool.submit(f"o{index}", quantity=5) for index in range(2)] + [shop.pool.submit("last")]
    reports = shop.take()
    assert sum(len(report.settled) for report in reports) == 3
    for handle in handles:
        outcome = handle.wait(30.0)
        assert isinstance(outcome, Settled)
        assert (outcome.state, outcome.quantity) == ("confirmed", 1 if handle.order_id == "last" else 5)
    assert (shop.waiting(), shop.pool.state().confirmed) == ([0, 0, 0], STOCK)


@worked
def test_a_message_that_comes_twice_and_late_confirms_once(shop: Shop) -> None:
    shop.pool.submit("a", quantity=9)
    shop.publisher.lines *= 3
    assert [report.settled[0].replay for report in shop.take()] == [False, True, True]
    assert shop.pool.state().confirmed == 9


@worked
def test_lost_messages_are_told_again_by_the_sweep_of_their_shard(shop: Shop) -> None:
    ids = [at_home_in(number, SHARDS)[0] for number in range(SHARDS)]
    shop.pool.submit_many(Order(order_id, 3) for order_id in ids)
    assert len(shop.publisher.messages()) == SHARDS  # and are lost
    shop.side.pass_time(2 * AFTER)
    assert (shop.sweep(), shop.sweep()) == (3, 0)
    assert Counter(report.settled[0].order_id for report in shop.take()) == Counter(ids)
    assert (shop.waiting(), shop.pool.state().confirmed) == ([0, 0, 0], 9)


@worked
def test_what_fails_for_ever_is_dead_in_its_shard_until_it_is_replayed(shop: Shop) -> None:
    good, bad = at_home_in(2, SHARDS)[:2]

    def step(order: Any) -> None:  # noqa: ANN401  # a BegunOrder
        if order.order.order_id == bad:
            message = "it rained"
            raise ValueError(message)

    handles = shop.pool.submit_many([Order(good, 4), Order(bad, 4)])
    shop.take(step=step, terms=WorkTerms(begun_max=1))
    assert [shop.refreshed(handle) for handle in handles] == ["confirmed", "dead"]
    assert [[one.order_id for one in shop.side.run(dead_plan(shard))] for shard in shop.shards] == [[], [], [bad]]
    handle = shop.pool.handle(bad)
    assert shop.refreshed(handle) == "dead"
    assert handle.outcome == Dead(bad, 1)
    (answer,) = shop.side.execute(op.ReplayDead(shop.shards[2], (bad,)))
    assert answer == Replayed(bad)
    assert shop.sweep() == 1
    assert [report.settled[0].state for report in shop.take()] == ["confirmed"]
    assert shop.refreshed(handle) == "confirmed"
    assert shop.pool.state().confirmed == 8


def test_the_name_of_a_shard_that_is_not_there_opens_nothing(plain_redis_side: Side) -> None:
    shop = Shop(plain_redis_side)
    raw = plain_redis_side.raw()
    before = set(raw.scan_iter(f"seg:*{shop.sku}*"))
    for name in (f"{shop.sku}\x1f{SHARDS}a", f"{shop.sku}\x1f0zz", f"{shop.sku}x\x1f0a"):
        with pytest.raises(ShardVanished):
            take_envelope(pool_of(plain_redis_side.store, name), ["a"])
        for operation in (op.SweepOutbox(checked_pool_name(name), 10, 1, 0, 0, LONG_MS, 5), op.ReadOutbox(name)):
            with pytest.raises((ShardVanished, PoolMissing)):
                plain_redis_side.execute(operation)
    with pytest.raises(PoolMissing):
        take_envelope(pool_of(plain_redis_side.store, shop.sku), ["a"])
    with pytest.raises(InvalidInput, match="names no shard of"):
        pool_of(plain_redis_side.store, f"{shop.sku}\x1f0a}}:meta")
    assert set(raw.scan_iter(f"seg:*{shop.sku}*")) == before

"""Submitting to a pool in shards: units, record and outbox in one step at the home, and workers shard by shard."""

from collections.abc import Iterator

import pytest

from segmented.errors import InvalidInput, SegmentedError
from segmented.keys import OUTBOXES
from segmented.models import Order
from segmented.stock import AsyncShardedPool, Outbox
from segmented.stores.memory import AsyncMemoryStore
from tests.fixtures.stores import Side
from tests.support.contract.shards.sharded_submitting import SHARDS, Shop, worked
from tests.support.contract.shards.sharding import at_home_in, check_all, sharded


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

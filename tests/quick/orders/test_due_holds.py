"""Abandoned orders of a gated pool: whoever asks next gets their units, with no worker running."""

import asyncio
from typing import Final

import pytest

from segmented import (
    AsyncMemoryStore,
    AsyncPool,
    MemoryStore,
    Order,
    Pool,
    RedisStore,
    Reserved,
    SoldOut,
    protocol as op,
)
from segmented.clock import ManualClock
from segmented.orders import AsyncGate, Gate
from segmented.orders.sale import take_order
from segmented.servers import ValkeyServer
from segmented.stock import Grant, ShardedPool
from tests.support.command_line import ran

SKU: Final = "mug"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(clock: ManualClock, gate: Gate) -> Pool:
    """Three units, two of them on hold for 12 s by buyers that never come back."""
    pool = Pool(MemoryStore(clock=clock), SKU, ttl=10, hold=12, gate=gate)
    pool.open(stock=3, segments=1)
    for order_id in ("gone", "also gone"):
        assert isinstance(pool.reserve(order_id), Reserved)
    return pool


def test_a_reservation_gets_the_units_of_holds_that_have_ended(pool: Pool, gate: Gate, clock: ManualClock) -> None:
    clock.advance(12.1)
    assert isinstance(pool.reserve("next", quantity=3), Reserved)
    assert {row.order_id: row.state for row in gate.each_order(SKU)} == {"gone": "void", "also gone": "void"}


@pytest.mark.parametrize("is_by_gate", [True, False])
def test_a_refusal_is_not_kept_while_holds_have_ended(
    pool: Pool, gate: Gate, clock: ManualClock, *, is_by_gate: bool
) -> None:
    clock.advance(12.1)
    if is_by_gate:
        with pool.grant("next", quantity=3, timeout=0, keep_refusal=True) as grant:
            assert isinstance(grant, Grant)
    else:
        assert take_order(Pool(pool.store, SKU), gate, Order("next", 3), timeout=0, keep_refusal=True)
    assert pool.state().confirmed == 3


@pytest.mark.parametrize("quantity", [1, 2, 4])
def test_in_shards_an_order_gets_the_units_of_holds_that_have_ended_in_any(
    gate: Gate, clock: ManualClock, quantity: int
) -> None:
    pool = ShardedPool(MemoryStore(clock=clock), SKU, ttl=10, hold=12, gate=gate)
    pool.open(stock=4, segments=2, shards=2)
    for number in range(4):
        pool.reserve(f"gone {number}")
    clock.advance(2)
    refused = pool.reserve("early", quantity=quantity)
    assert isinstance(refused, SoldOut)
    assert refused.free_in_ms == 10_000
    clock.advance(10.1)
    assert isinstance(pool.reserve("next", quantity=quantity), Reserved)


def test_asyncio_does_the_same(order_database: str, clock: ManualClock) -> None:
    async def scene() -> None:
        async with AsyncGate(order_database) as gate:
            pool = AsyncPool(AsyncMemoryStore(clock=clock), SKU, ttl=10, hold=12, gate=gate)
            await pool.open(stock=2, segments=1)
            await pool.reserve("gone", quantity=2)
            refused = await pool.reserve("early")
            assert isinstance(refused, SoldOut)
            assert refused.free_in_ms == 12_000
            clock.advance(12.1)
            assert await pool.available() == 2
            assert isinstance(await pool.reserve("next"), Reserved)
            async with pool.grant("and next", timeout=0):
                pass

    asyncio.run(scene())


def test_a_command_settles_expired_holds(gate: Gate, valkey: ValkeyServer, order_database: str) -> None:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, "cup", ttl=0.001, hold=0.001, gate=gate)
        pool.open(stock=3, segments=1)
        pool.reserve("gone")
        pool.reserve("sold")
        gate.confirm(order_id="sold", sku="cup", segment=0, quantity=1, epoch=1)
        said = [ran("pool", "expire", "cup", "--database", order_database, url=valkey.url) for _ in range(2)]
        assert [one.stdout for one in said] == [
            "2 orders with an expired hold: 1 confirmed, 1 expired\n",
            "0 orders with an expired hold: nothing is changed\n",
        ]
        assert (pool.state().available, pool.state().confirmed) == (2, 1)


def test_a_refusal_with_units_on_hold_says_when_to_try_again(pool: Pool, clock: ManualClock) -> None:
    clock.advance(8)
    refused = pool.reserve("asked", quantity=2)
    assert isinstance(refused, SoldOut)
    assert refused.free_in_ms == 4_000
    assert refused.describe() == "sold out (1 unit free, 2 on hold, 2 asked for; try again in 4.0 s)"


def test_workers_know_a_gated_pool_from_its_opening(store: RedisStore, gate: Gate) -> None:
    Pool(store, SKU, gate=gate).open(stock=1, segments=1)
    ShardedPool(store, "shirt", gate=gate).open(stock=2, segments=2, shards=2)
    known = set(store.execute(op.ListOutboxes()))
    assert {SKU, *(shard.sku for shard in ShardedPool(store, "shirt", gate=gate).shards)} <= known

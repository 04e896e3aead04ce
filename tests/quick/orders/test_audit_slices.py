"""An audit in slices goes on where the last slice ended, in any process, and misses nothing."""

from collections.abc import Callable
from typing import Final

import pytest

from segmented import Order, Pool, RedisStore, Reserved
from segmented.keys import shard_keys
from segmented.orders import Gate
from segmented.orders.auditing import audit_slice
from segmented.stock import ShardedPool
from tests.quick.orders.test_audit_both import execute, pool, sell

__all__ = ["execute", "pool"]
SKU: Final = "mug"
LONG: Final = 1_200
"""Changes of a ledger that has more than one slice."""


def rest_of(pool: Pool, gate: Gate | None) -> tuple[list[str], int]:
    """Audit in as many calls as it takes, each of one slice, as processes that are killed after each."""
    found, count = list[str](), 0
    while True:
        report = audit_slice(Pool(pool.store, pool.sku), gate, is_over=lambda: True)
        found += report.found
        count += 1
        if report.is_ended:
            return found, count


def long_ledger(pool: Pool) -> None:
    for number in range(LONG):
        pool.reserve(f"{number}")


def test_a_row_that_the_database_lost_is_reported(pool: Pool, gate: Gate, execute: Callable[[str], None]) -> None:
    for number in range(10):
        sell(pool, gate, f"{number}")
    assert rest_of(pool, gate) == ([], 4)
    execute("DELETE FROM segmented_orders WHERE order_id = '3'")
    lost = "pool only: order 3: the pool says confirmed with 1 unit, the order database says nothing"
    found, _ = rest_of(pool, gate)
    assert found[0] == lost
    assert len(found) == 2  # and the sums of the database's own rows


def test_a_long_audit_ends_though_each_process_does_one_slice(store: RedisStore, gate: Gate) -> None:
    long = Pool(store, SKU)
    Pool(long.store, long.sku, gate=gate).open(stock=2 * LONG, segments=4)
    long_ledger(long)
    found, count = rest_of(long, gate)
    assert found == []
    assert count > 3
    sell(long, gate, "one more")
    assert rest_of(long, gate)[0] == []


@pytest.mark.parametrize("order_id", ["1", f"{LONG - 1}"])
def test_a_record_changed_from_outside_is_found_in_every_slice(store: RedisStore, order_id: str) -> None:
    long = Pool(store, SKU)
    long.open(stock=2 * LONG, segments=4)
    long_ledger(long)
    store.client.hset(shard_keys(SKU).orders, order_id, "c\t1\t0\t\t\t\t7")
    found, _ = rest_of(long, None)
    assert len(found) == 1
    assert found[0].startswith(f"foreign write: order {order_id}: its record cannot be read")


def test_totals_are_compared_behind_the_last_slice(store: RedisStore) -> None:
    long = Pool(store, SKU)
    long.open(stock=2 * LONG, segments=4)
    long_ledger(long)
    store.client.hincrby(shard_keys(SKU).meta, "available", 5)
    found, _ = rest_of(long, None)
    assert next(one for one in found if "available" in one) == (
        f"foreign write: available is {LONG + 5}, the ledger says {LONG}"
    )


def test_slices_of_a_shard_know_the_transfers_of_earlier_slices(store: RedisStore) -> None:
    shards = ShardedPool(store, SKU)
    shards.open(stock=20, segments=4, shards=2)
    assert isinstance(shards.reserve(Order("large", 15)), Reserved)  # units move between the shards
    for number in range(3 * LONG):
        shards.reserve(f"{number}")
        shards.cancel(f"{number}")
    for shard in shards.shards:
        found, count = rest_of(shard.plain, None)
        assert found == []
        assert count > 1

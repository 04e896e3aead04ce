"""The audit of many orders: its memory does not grow with them, and it names each of those that drifted."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Final

import pytest

from segmented import Pool, RedisStore, protocol as op
from segmented.keys import shard_keys
from segmented.models import Order
from segmented.plans import run_sync
from segmented.stock.audit import audit_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.servers import ValkeyServer

ORDERS: Final = 100_000
PEAK_MAX: Final = 6_000_000
"""Bytes. The fold of all orders took 38 million for 100,000 of them."""
SKU: Final = "audited"


@pytest.fixture
def store(private_valkey: ValkeyServer) -> Iterator[RedisStore]:
    with RedisStore.from_url(private_valkey.url) as found:
        found.execute(op.OpenPool(SKU, 10**9, 20, gated=False))
        yield found


def sell(store: RedisStore, count: int, *, first: int = 0, confirms: bool = True) -> None:
    for start in range(first, first + count, 1_000):
        orders = tuple(Order(f"order-{start + index}", 1) for index in range(1_000))
        store.execute(op.ReserveMany(SKU, orders, 600_000))
        if confirms:
            store.execute(op.SettleMany(SKU, "confirmed", tuple(order.order_id for order in orders)))


@pytest.mark.long
def test_a_hundred_thousand_orders_in_batches_are_audited_in_six_megabytes(store: RedisStore) -> None:
    sell(store, ORDERS // 2)
    sell(store, ORDERS // 2, first=ORDERS // 2, confirms=False)
    gc.collect()
    tracemalloc.start()
    try:
        report, _ = run_sync(audit_plan(SKU), store)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.is_clean
    assert (report.state.confirmed, report.state.reserved) == (ORDERS // 2, ORDERS // 2)
    assert peak < PEAK_MAX


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_each_of_six_drifts_among_thousands_of_orders_is_named_and_mended(
    store: RedisStore, *, is_trimmed: bool
) -> None:
    sell(store, 3_000)
    sell(store, 2_000, first=3_000, confirms=False)
    if is_trimmed:
        assert store.execute(op.TrimLedger(SKU, 0)).first_sequence == 10
    store.execute(op.SettleMany(SKU, "cancelled", tuple(f"order-{index}" for index in range(3_000, 4_000))))
    sell(store, 1_000, first=5_000, confirms=False)
    pool, keys, server = Pool(store, SKU), shard_keys(SKU), store.client
    assert pool.audit().is_clean
    server.hdel(keys.orders, "order-5001")
    server.hset(keys.orders, "order-5002", f"r\t3\t0\t{pool.state().sequence}")
    server.hset(keys.orders, "foreign", f"c\t1\t0\t{pool.state().sequence}")
    server.zadd(keys.holds, {"nobody": 10**15, "order-3003": 10**15})
    server.zrem(keys.holds, "order-5004")
    report = pool.audit()
    assert sorted((drift.kind, drift.order_id) for drift in report.drift) == [
        ("foreign write", "foreign"),
        ("foreign write", "order-5002"),
        ("leaked hold", "nobody"),
        ("leaked hold", "order-3003"),
        ("leaked hold", "order-5004"),
        ("lost", "order-5001"),
    ]
    repaired = pool.repair(report, yes=True)
    assert (repaired.is_clean, repaired.done_count) == (True, 6)

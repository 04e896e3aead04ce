"""The audit of many orders: its memory does not grow with them, and it names each of those that drifted."""

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Final

import pytest

from segmented import RedisStore, protocol as op
from segmented.models import Order
from segmented.plans import run_sync
from segmented.servers import ValkeyServer
from segmented.stock.audit import audit_plan

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

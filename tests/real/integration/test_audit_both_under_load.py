"""A gated pool compared with its order database while it sells: no false alarm, and flat memory."""

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Final

import pytest

from segmented import Order, Pool, RedisStore, Reserved, Settled, protocol as op
from segmented.orders import Claim, Gate, audit_both
from segmented.orders.opening import restock_gated, withdraw_gated
from segmented.orders.sale import cancel_order, expire_voided, finish_reserved, take_order
from segmented.servers import ValkeyServer

SKU: Final = "mug"
PEAK_MAX: Final = 2_500_000
"""Bytes; a page of about 1,000 orders on both sides takes half of it."""
SOLD_MIN: Final = 100
AUDITS_MIN: Final = 5
SECONDS: Final = 60.0


@pytest.fixture
def order_database(postgres_database: str) -> str:
    return postgres_database


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """A hundred units in four segments, on both sides."""
    pool = Pool(store, SKU)
    Pool(pool.store, pool.sku, gate=gate).open(stock=100, segments=4)
    return pool


def sell(pool: Pool, gate: Gate, order_id: str, quantity: int = 1, customer_id: str | None = None) -> None:
    answer = take_order(pool, gate, Order(order_id, quantity, customer_id), timeout=SECONDS)
    assert isinstance(answer, Settled)
    assert answer.state == "confirmed"


def test_no_audit_gives_a_false_alarm_while_the_pool_sells(valkey: ValkeyServer, pool: Pool, gate: Gate) -> None:
    restock_gated(pool, gate, 100_000, restock_id="enough")
    stop, sold = threading.Event(), count()

    def seller(name: str) -> int:
        with RedisStore.from_url(valkey.url) as store:
            own = Pool(store, SKU, ttl=600, hold=600)
            hasty = Pool(store, SKU, ttl=0.001, hold=0.001)
            for number in count():
                order = Order(f"{name}-{number}", 1 + number % 3, f"customer {number % 7}")
                sell(own, gate, order.order_id, order.quantity, order.customer_id)
                reserved = own.reserve(Order(f"{order.order_id} later"))
                assert isinstance(reserved, Reserved)
                if number % 2:
                    cancel_order(own, gate, Order(f"{order.order_id} later"))
                else:
                    finish_reserved(own, gate, Order(f"{order.order_id} later"), reserved)
                hasty.reserve(f"{order.order_id} never")
                expire_voided(own, gate, limit=10)
                if number % 20 == 0:
                    restock_gated(own, gate, 3, restock_id=order.order_id)
                    withdraw_gated(own, gate, 2, withdraw_id=f"{order.order_id} out")
                next(sold)
                if stop.is_set():
                    return number
        raise AssertionError

    audits = 0
    with ThreadPoolExecutor(2) as threads:
        selling = [threads.submit(seller, name) for name in ("a", "b")]
        try:
            while next(sold) < SOLD_MIN or audits < AUDITS_MIN:
                assert audit_both(pool, gate).differences == ()
                audits += 1
                assert not any(one.done() for one in selling)
        finally:
            stop.set()
        assert all(one.result(timeout=2 * SECONDS) for one in selling)
    assert audit_both(pool, gate).is_clean
    assert pool.audit().is_clean


def test_memory_does_not_grow_with_the_number_of_orders(pool: Pool, gate: Gate) -> None:
    restock_gated(pool, gate, 20_000, restock_id="enough")
    audit_both(pool, gate)  # imports and texts of statements, once for all
    peaks = []
    for batch in range(8):
        orders = [Order(f"order {batch} {number}", 1, "customer") for number in range(1_000)]
        taken = pool.reserve_many(orders)
        pairs = zip(orders, taken, strict=True)
        claims = [Claim(order, SKU, one.segment, 1) for order, one in pairs if isinstance(one, Reserved)]
        gate.confirm_many(claims)
        pool.store.execute(op.SettleMany(SKU, "confirmed", tuple(one.order.order_id for one in claims), decided=True))
        if batch in {1, 7}:
            tracemalloc.start()
            report = audit_both(pool, gate)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert (report.is_clean, report.pool_count) == (True, 1_000 * (batch + 1))
    assert peaks[1] < PEAK_MAX
    assert peaks[1] < 1.5 * peaks[0]  # a page of HSCAN has some more than it is asked for

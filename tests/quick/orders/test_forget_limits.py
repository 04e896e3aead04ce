"""A pool with a limit per customer forgets orders, and each customer keeps the units that were bought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import LimitReached, Order, Pool, RedisStore, Settled
from segmented.keys import shard_keys
from segmented.orders import Gate, finish_reserved, forget, forgetting, open_gated, rebuild, relay, take_order
from segmented.stock.outbox import Outbox
from tests.support.pools.gated_shop import check

if TYPE_CHECKING:
    from segmented import Reserved

SKU: Final = "mug"
CUSTOMERS: Final = shard_keys(SKU).customers


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pool forget without the ten seconds of its notice, and processes read again at once."""
    monkeypatch.setattr(forgetting, "NOTICE_MS", 0)
    monkeypatch.setattr(forgetting, "READ_AGAIN", 0.0)


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units, at most three a customer: ann has bought three, bob one, and both orders of ann are forgotten."""
    pool = Pool(store, SKU, outbox=Outbox(publish_after=600))
    open_gated(pool, gate, stock=20, segments=4, limit_per_customer=3)
    sold(pool, gate, Order("a", 2, "ann"))
    sold(pool, gate, Order("b", 1, "ann"))
    for _ in range(3):
        relay(pool, gate, trim_keep=0)
    assert forget(pool, gate, grace=0).units == 3
    sold(pool, gate, Order("c", 1, "bob"))
    return pool


def sold(pool: Pool, gate: Gate, order: Order) -> None:
    settled = take_order(pool, gate, order, timeout=5)
    assert isinstance(settled, Settled)
    assert settled.state == "confirmed"


def test_the_limit_holds_after_a_customers_orders_are_forgotten(pool: Pool, gate: Gate) -> None:
    refused = take_order(pool, gate, Order("d", 1, "ann"), timeout=5)
    assert isinstance(refused, LimitReached)
    assert isinstance(take_order(pool, gate, Order("e", 3, "bob"), timeout=5), LimitReached)
    sold(pool, gate, Order("f", 2, "bob"))
    check(pool, gate, confirmed=6, available=14)


def test_a_repeat_of_a_forgotten_order_is_no_further_purchase(pool: Pool, gate: Gate) -> None:
    sold(pool, gate, Order("a", 2, "ann"))
    sold(pool, gate, Order("b", 1, "ann"))
    check(pool, gate, confirmed=4, available=16)


def test_units_reserved_for_a_forgotten_order_go_back_to_the_pool_and_the_customer(
    pool: Pool, gate: Gate, store: RedisStore
) -> None:
    for _ in range(3):
        relay(pool, gate, trim_keep=0)
    assert forget(pool, gate, grace=0).units == 1
    reserved: Reserved = pool.reserve(Order("c", 1, "bob"))  # type: ignore[assignment]  # bob may have two more
    assert finish_reserved(pool, gate, Order("c", 1, "bob"), reserved).state == "confirmed"
    assert store.client.hgetall(CUSTOMERS) == {b"ann": b"3", b"bob": b"1"}
    check(pool, gate, confirmed=4, available=16)


def test_a_rebuild_keeps_what_each_customer_has_bought(pool: Pool, gate: Gate, store: RedisStore) -> None:
    store.client.hset(shard_keys(SKU).meta, "confirmed", "many")
    rebuild(pool, gate)
    assert store.client.hgetall(CUSTOMERS) == {b"ann": b"3", b"bob": b"1"}
    assert isinstance(take_order(pool, gate, Order("d", 1, "ann"), timeout=5), LimitReached)
    check(pool, gate, confirmed=4, available=16)


@pytest.mark.parametrize(
    ("customer", "units", "detail"),
    [
        ("bob", 0, "customer bob has 0 units, the ledger says 1"),
        ("bob", 2, "customers have 4 units beyond their orders, but only 3 of forgotten orders"),
        ("eve", 1, "customers have 4 units beyond their orders, but only 3 of forgotten orders"),
    ],
)
def test_an_audit_names_units_of_customers_that_no_order_explains(
    pool: Pool, store: RedisStore, customer: str, units: int, detail: str
) -> None:
    assert pool.audit().is_clean
    store.client.hset(CUSTOMERS, customer, units)
    assert [one.detail for one in pool.audit().drift] == [detail]

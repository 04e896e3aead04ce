"""A pool with a limit per customer forgets orders, and each customer keeps the units that were bought."""

from typing import Final

import pytest

from segmented import Order, Pool, RedisStore, Settled
from segmented.orders import Gate, forget, forgetting, relay
from segmented.orders.sale import take_order
from segmented.stock.outbox import Outbox
from tests.support.pools.gated_shop import check

SKU: Final = "mug"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pool forget without the ten seconds of its notice, and processes read again at once."""
    monkeypatch.setattr(forgetting, "NOTICE_MS", 0)
    monkeypatch.setattr(forgetting, "READ_AGAIN", 0.0)


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units, at most three a customer: ann has bought three, bob one, and both orders of ann are forgotten."""
    pool = Pool(store, SKU, outbox=Outbox(publish_after=600))
    Pool(pool.store, pool.sku, gate=gate).open(stock=20, segments=4, limit_per_customer=3)
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


def test_a_repeat_of_a_forgotten_order_is_no_further_purchase(pool: Pool, gate: Gate) -> None:
    sold(pool, gate, Order("a", 2, "ann"))
    sold(pool, gate, Order("b", 1, "ann"))
    check(pool, gate, confirmed=4, available=16)

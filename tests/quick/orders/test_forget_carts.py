"""A pool forgets the orders of a finished cart's lines and keeps the cart's record, which answers its repeats."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from segmented import Gate, Pool, RedisStore, protocol as op
from segmented.models import Cart, CartRecord
from segmented.orders import audit_both, forget, forgetting, relay
from segmented.stock import Carts

if TYPE_CHECKING:
    from segmented.models import CartAnswer, CartSettled

SKUS: Final = ("cap", "mug")
LINES: Final = [("mug", 2), ("cap", 1)]
HOME: Final = "cap"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pool forget without the ten seconds of its notice, and processes read again at once."""
    monkeypatch.setattr(forgetting, "NOTICE_MS", 0)
    monkeypatch.setattr(forgetting, "READ_AGAIN", 0.0)


def forgotten(pool: Pool, gate: Gate) -> int:
    """Relay, trim and forget; return how many orders that were."""
    for _ in range(3):
        relay(pool, gate, trim_keep=0)
    return forget(pool, gate, grace=0.0).orders


def test_a_finished_cart_answers_its_repeats_after_its_orders_are_forgotten(store: RedisStore, gate: Gate) -> None:
    pools = [Pool(store, sku, gate=gate) for sku in SKUS]
    for pool in pools:
        pool.open(stock=10, segments=2)
    carts = Carts(store, gate=gate)
    sold, back = Cart("sold", LINES), Cart("back", LINES)
    for cart in (sold, back):
        carts.reserve(cart)
    carts.confirm("sold", home=HOME)
    carts.cancel("back", home=HOME)

    def answers() -> tuple[list[CartAnswer], CartSettled, CartSettled, list[CartRecord]]:
        repeats = [carts.reserve(cart) for cart in (sold, back)]
        records = [replace(carts.read(cart.cart_id, home=HOME), left_ms=0) for cart in (sold, back)]
        return repeats, carts.confirm("sold", home=HOME), carts.cancel("back", home=HOME), records

    before = answers()
    assert [forgotten(pool.plain, gate) for pool in pools] == [2, 2]
    for pool in pools:
        assert store.execute(op.ReadOrders(pool.sku, (sold.order_id, back.order_id))) == (None, None)
    assert answers() == before
    assert [(pool.state().confirmed, pool.state().available) for pool in pools] == [(1, 9), (2, 8)]
    for pool in pools:
        assert pool.audit().drift == ()
        assert audit_both(pool.plain, gate).is_clean

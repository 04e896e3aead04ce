"""What is left of a pool whose keys vanished in part, when orders had been given up."""

from __future__ import annotations

import pytest

from segmented import protocol as op
from segmented.errors import StoreRefused
from segmented.models import Order
from tests.fixtures.stores import Side  # noqa: TC001  # a fixture's type
from tests.support.contract.pools.shop import LONG_MS, Shop


def test_orders_that_were_given_up_keep_a_pool_from_being_opened_over_them(plain_redis_side: Side) -> None:
    shop = Shop(plain_redis_side, plain_redis_side.name())
    shop.open(5, 1)
    side = shop.side
    side.execute(op.QueueOrders(shop.sku, (Order("a", 1),), LONG_MS))
    side.execute(op.TakeOrders(shop.sku, ("a",), "h", LONG_MS, LONG_MS, LONG_MS, 1))
    side.execute(op.PutOff(shop.sku, ("a",), "h", 1, counts=True, begun_max=1, reason="bad", hold_ms=60_000))
    side.raw().delete(*(key for key in shop.keys.listed() if key != shop.keys.dead))
    with pytest.raises(StoreRefused, match="lost some of its keys"):
        shop.open(5, 1, epoch=2)

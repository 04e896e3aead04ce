"""A pool one of whose keys was deleted or lost is frozen before it answers, and sells again once it is thawed."""

import pytest

from segmented import protocol as op
from segmented.models import Reserved
from segmented.stock.ledger import trim_plan
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import Shop


@pytest.fixture
def shop(side: Side) -> Shop:
    """Ten units in four segments: one is sold, and two are reserved."""
    return filled(Shop(side, side.name()))


def filled(shop: Shop) -> Shop:
    shop.open(10, 4)
    shop.reserved("sold")
    shop.confirm("sold")
    shop.reserved("kept", 2)
    return shop


def test_a_pool_that_has_forgotten_all_its_orders_sells(side: Side) -> None:
    shop = Shop(side, side.name())
    shop.open(4, 2, gated=True)
    shop.reserved("a", 2)
    side.execute(op.Confirm(shop.sku, "a", None, decided=True))
    for _ in range(2):
        side.execute(op.NoteRelayed(shop.sku, (1, shop.state().sequence)))
        side.run(trim_plan(op.TrimLedger(shop.sku, 0, relayed_only=True)))
    for _ in range(2):
        side.execute(op.ForgetOrders(shop.sku, 3, 0, (("a", 3),)))
    state = shop.state()
    assert (state.order_count, state.confirmed, state.lost, state.frozen) == (0, 2, 2, None)
    assert isinstance(shop.reserve("b", 2), Reserved)

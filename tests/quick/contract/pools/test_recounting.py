"""A frozen gated pool whose numbers were counted again, from its records, for a thaw that replaces them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import PoolMissing, PoolNotFrozen, PoolNotGated
from tests.support.contract.pools.shop import Shop, verified

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


@pytest.fixture
def shop(side: Side) -> Shop:
    return Shop(side, side.name())


def recount(shop: Shop, *, before: tuple[int, int] = (2, 1)) -> bool:
    return shop.side.execute(op.RecountPool(shop.sku, 2, 1, 4, 3, 4, 0, before))


def frozen(shop: Shop) -> Shop:
    """Eleven units, of which one is sold and two are reserved, after a restock and a withdrawal."""
    shop.open(10, 4, gated=True)
    shop.restock(4, "r")
    shop.withdraw(3, "w")
    shop.reserved("sold")
    shop.confirm("sold", stored=True)
    shop.reserved("kept", 2)
    shop.side.execute(op.FreezePool(shop.sku, 1))
    return shop


def test_a_pool_with_counted_numbers_stays_frozen_and_is_thawed_with_them(shop: Shop) -> None:
    frozen(shop)
    assert recount(shop)
    state = shop.state()
    assert (state.reserved, state.confirmed, state.restocked, state.withdrawn, state.lost) == (2, 1, 4, 3, 0)
    assert state.frozen is not None
    shop.side.execute(op.ThawPool(shop.sku, 2, 1, 11, is_stored=True))
    verified(shop.side, shop.sku, epoch=2)
    assert (shop.totals(), shop.state().stocked) == ((8, 2, 1), 11)
    shop.confirm("kept", stored=True)
    shop.check_books()


def test_numbers_that_another_rebuild_has_changed_meanwhile_are_left_alone(shop: Shop) -> None:
    frozen(shop)
    before = shop.state()
    assert not recount(shop, before=(3, 1))
    assert not recount(shop, before=(2, 0))
    assert shop.state() == before


def test_counted_numbers_are_for_a_frozen_pool_with_an_order_database(shop: Shop) -> None:
    with pytest.raises(PoolMissing):
        recount(shop)
    shop.open(10, 4)
    with pytest.raises(PoolNotGated):
        recount(shop)
    sells = Shop(shop.side, shop.side.name())
    sells.open(10, 4, gated=True)
    with pytest.raises(PoolNotFrozen):
        recount(sells, before=(0, 0))
    assert sells.totals() == (10, 0, 0)

"""A pool's keys say their layout: a release that does not know it changes nothing and says what to do."""

import pytest

from segmented.models import Reserved
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import Shop


@pytest.fixture
def shop(redis_side: Side) -> Shop:
    """A pool of ten units, of which one is reserved."""
    shop = Shop(redis_side, redis_side.name())
    shop.open(10, 4)
    shop.reserved("kept")
    return shop


def test_a_pool_from_before_the_field_is_of_layout_1(shop: Shop) -> None:
    assert shop.side.raw().hget(shop.keys.meta, "layout") in ("1", b"1")
    shop.side.raw().hdel(shop.keys.meta, "layout")
    assert shop.confirm("kept").state == "confirmed"
    assert isinstance(shop.reserve("next"), Reserved)
    assert shop.side.pool(shop.sku).audit().is_clean

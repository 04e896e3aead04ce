"""Units that cannot be read, or do not add up to the total: what is refused for it takes nothing and keeps nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented.errors import PoolDrifted
from segmented.models import Order, Reserved, Settled
from tests.quick.contract.pools.test_foreign_entries import dump
from tests.support.contract.pools.shop import SHORT_MS, Shop

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


@pytest.fixture
def open_shop(plain_redis_side: Side) -> Shop:
    """A pool to be damaged: nobody checks its books afterwards."""
    return Shop(plain_redis_side, plain_redis_side.name())


def units_there(shop: Shop) -> list[int]:
    """The units of the segments as the server has them, the fewest first."""
    found: Any = shop.side.raw().hvals(shop.keys.stock)
    return sorted(int(units) for units in found)


def test_units_that_were_gathered_in_vain_are_there_for_the_next_order_of_the_batch(open_shop: Shop) -> None:
    open_shop.open(9, 3)
    open_shop.side.raw().hincrby(open_shop.keys.stock, "0", -3)
    first, second = open_shop.reserve_many([Order("a", 9), Order("b", 5)])
    assert isinstance(first, PoolDrifted)
    assert isinstance(second, Reserved)
    assert units_there(open_shop) == [0, 0, 1]
    assert open_shop.totals() == (4, 5, 0)


def test_units_that_were_gathered_in_vain_for_a_grant_stay_and_its_segment_is_free(open_shop: Shop) -> None:
    open_shop.open(9, 1)
    open_shop.side.raw().hincrby(open_shop.keys.stock, "0", -3)
    with pytest.raises(PoolDrifted):
        open_shop.grant("a", 9)
    open_shop.granted("b", 6)


def test_what_lapsed_is_given_back_also_for_an_order_that_is_refused_as_drifted(plain_redis_side: Side) -> None:
    for way in (Shop.grant, Shop.reserve):
        shop = Shop(plain_redis_side, plain_redis_side.name())
        shop.open(9, 3)
        shop.reserved("late", 2, hold_ms=0)
        shop.side.raw().hincrby(shop.keys.stock, "2", -3)
        with pytest.raises(PoolDrifted):
            way(shop, "a", 9)
        assert (shop.totals(), units_there(shop), shop.state().sequence) == ((9, 0, 0), [0, 3, 3], 3), way


def test_units_go_back_to_no_segment_whose_own_cannot_be_read(open_shop: Shop) -> None:
    open_shop.open(9, 1)
    open_shop.reserved("plain", 2, hold_ms=SHORT_MS)
    open_shop.granted("granted", 2, ttl_ms=SHORT_MS, hold_ms=SHORT_MS)
    open_shop.let_short_holds_lapse()
    open_shop.side.raw().hset(open_shop.keys.stock, "0", "2.5")
    before = dump(open_shop)
    for end in (Shop.cancel, Shop.expire):
        for order_id in ("plain", "granted"):
            with pytest.raises(PoolDrifted):
                end(open_shop, order_id)
    assert open_shop.expire_due() == ((), False)
    assert [type(answer) for answer in open_shop.cancel_many("plain", "granted")] == [PoolDrifted] * 2
    assert dump(open_shop) == before
    assert [answer.state for answer in map(open_shop.confirm, ("plain", "granted"))] == ["confirmed"] * 2
    assert open_shop.totals() == (5, 0, 4)


def test_units_of_a_segment_that_went_away_go_to_none_whose_own_cannot_be_read(open_shop: Shop) -> None:
    open_shop.open(9, 3)
    segments = [open_shop.reserved(order_id, 2).parts[0][0] for order_id in "abc"]
    assert sorted(segments) == [0, 1, 2]
    open_shop.resize(2)
    open_shop.side.raw().hset(open_shop.keys.stock, "0", "2.5")
    before = dump(open_shop)
    with pytest.raises(PoolDrifted):
        open_shop.cancel("abc"[segments.index(2)])
    assert dump(open_shop) == before
    answer = open_shop.cancel("abc"[segments.index(1)])
    assert isinstance(answer, Settled)
    assert answer.state == "cancelled"

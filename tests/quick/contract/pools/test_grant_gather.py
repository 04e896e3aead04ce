"""An order larger than any one segment: it locks one segment and takes units from others, locked or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.models import SoldOut

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def test_of_20_segments_with_1_unit_each_15_go_to_one_order_6_are_refused_and_5_sold(shop: Shop) -> None:
    shop.open(20, 20)
    assert shop.grant("more", 21) == SoldOut("more", 21, available=20, reserved=0, sequence=1)
    shop.granted("cancelled", 15)
    shop.cancel("cancelled")
    assert shop.state().stock == (1,) * 20
    assert len(shop.granted("fifteen", 15).parts) == 15
    shop.confirm("fifteen")
    assert shop.grant("six", 6) == SoldOut("six", 6, available=5, reserved=0, sequence=5)
    assert len(shop.granted("five", 5).parts) == 5
    shop.confirm("five")
    assert shop.totals() == (0, 0, 20)


def test_units_come_from_the_own_segment_first_then_from_where_some_were_found_last(shop: Shop) -> None:
    shop.open(12, 4)
    shop.granted("a")
    assert shop.granted("b", 8).parts == ((1, 3), (0, 2), (2, 3))
    assert shop.state().stock == (0, 0, 0, 3)


def test_units_of_a_locked_segment_are_not_stranded(shop: Shop) -> None:
    shop.open(10, 2)
    shop.granted("a")
    assert shop.granted("b", 9).parts == ((1, 5), (0, 4))
    assert shop.totals() == (0, 10, 0)


def test_an_empty_segment_still_serves_any_order(shop: Shop) -> None:
    shop.open(4, 2)
    shop.granted("a", 2)
    shop.confirm("a")
    assert shop.granted("b").segment == 1
    granted = shop.granted("c")
    assert (granted.segment, granted.parts) == (0, ((1, 1),))

"""Another number of segments while the pool sells: units are split anew, and holders finish undisturbed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.models import Busy, Lost, Renewed, Reserved, SoldOut
from tests.support.contract.pools.shop import LONG_MS

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def test_free_units_are_split_evenly(shop: Shop) -> None:
    shop.open(10, 3)
    splits = {5: (2,) * 5, 3: (4, 3, 3), 1: (10,), 4: (3, 3, 2, 2), 12: (1,) * 10 + (0,) * 2}
    for sequence, (count, stock) in enumerate(splits.items(), start=2):
        resized = shop.resize(count)
        assert not resized.replay
        assert resized.state == shop.state()
        assert (resized.state.segment_count, resized.state.stock, resized.state.sequence) == (count, stock, sequence)
    before, entry = shop.state(), shop.ledger()[-1]
    assert (entry.kind, entry.order_id, entry.quantity, entry.note) == ("resized", None, 10, "12")
    assert entry.parts == tuple((segment, 1) for segment in range(10))
    again = shop.resize(12)
    assert again.replay
    assert again.state == before == shop.state()
    shop.close()
    assert shop.resize(4).state.is_closed


def test_sold_units_do_not_come_back(shop: Shop) -> None:
    """And an order that fits is never refused, at any number."""
    shop.open(100, 20)
    left = 100
    for index, count in enumerate((64, 7, 1, 33, 100, 2, 4_096, 20)):
        shop.resize(count)
        assert (shop.totals()[0], sum(shop.state().stock)) == (left, left), count
        assert isinstance(shop.reserve(f"too large {index}", left + 1), SoldOut)
        shop.reserved(f"o{index}", 10)
        left -= 10
        if index % 2:
            shop.confirm(f"o{index}")
    assert isinstance(shop.reserve("last", left), Reserved)
    assert shop.totals() == (0, 60, 40)


def test_units_of_a_segment_that_went_away_return_to_another(shop: Shop) -> None:
    shop.open(8, 4)
    granted = [shop.granted(order_id, 2) for order_id in "abcd"]
    assert [grant.segment for grant in granted] == [0, 1, 2, 3]
    shop.resize(3)
    shop.cancel("d")
    assert shop.state().stock == (2, 0, 0)
    shop.resize(2)
    shop.cancel("c")
    assert sum(shop.state().stock) == 4
    shop.resize(8)
    shop.cancel("b")
    shop.cancel("a")
    assert shop.totals() == (8, 0, 0)
    assert sum(shop.state().stock) == 8


def test_holders_in_segments_that_go_away_renew_and_confirm_and_keep_others_out(shop: Shop) -> None:
    shop.open(12, 3)
    for order_id in "abc":
        shop.granted(order_id, 2)
    shop.resize(1)
    assert isinstance(shop.grant("d"), Busy)
    for order_id in "bc":
        assert isinstance(shop.renew(order_id), Renewed)
        assert shop.confirm(order_id).state == "confirmed"
        assert isinstance(shop.grant("d"), Busy)
    shop.confirm("a")
    assert shop.granted("d").segment == 0
    assert shop.totals() == (5, 1, 6)


def test_a_segment_that_comes_back_is_not_free_while_its_old_holder_lives(shop: Shop) -> None:
    shop.open(12, 2)
    shop.granted("a")
    old = shop.granted("b")
    assert old.segment == 1
    shop.resize(1)
    shop.resize(2)
    assert isinstance(shop.grant("c"), Busy)
    shop.confirm("b")
    new = shop.granted("c")
    assert new.segment == 1
    assert new.fencing_token > old.fencing_token


def test_a_segment_that_comes_back_is_expected_free_when_its_old_holders_lease_ends(shop: Shop) -> None:
    shop.open(12, 2)
    shop.granted("a")
    shop.granted("b")
    shop.resize(1)
    shop.resize(2)
    free_in_ms = shop.granted("a").free_in_ms
    assert free_in_ms is not None
    assert LONG_MS - 30_000 < free_in_ms <= LONG_MS


def test_an_old_holder_that_wakes_after_down_and_up_frees_nothing_of_its_successor(shop: Shop) -> None:
    shop.open(12, 2)
    shop.granted("a")
    shop.granted("b")
    shop.let_lease_lapse("b")
    shop.resize(1)
    shop.resize(2)
    assert shop.granted("c").segment == 1
    assert isinstance(shop.renew("b"), Lost)
    assert shop.confirm("b").state == "confirmed"
    assert isinstance(shop.grant("d"), Busy)
    assert isinstance(shop.renew("c"), Renewed)


def test_a_second_delivery_takes_over_an_order_whose_segment_went_away(shop: Shop) -> None:
    shop.open(12, 4)
    *_, first = (shop.granted(order_id, 3, holder_id="first") for order_id in "abcd")
    assert first.segment == 3
    shop.let_lease_lapse("d", "first")
    shop.confirm("a")
    shop.resize(2)
    second = shop.granted("d", 3, holder_id="second")
    assert (second.segment, second.replay, second.parts) == (0, True, ((3, 3),))
    assert second.fencing_token > first.fencing_token
    shop.cancel("d")
    assert shop.state().stock == (0, 3)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import PoolMissing
from segmented.models import STOCK_MAX, AlreadyOpen, Opened, Order

if TYPE_CHECKING:
    from tests.fixtures.stores import Side
    from tests.support.contract.pools.shop import Shop


def test_ten_units_over_four_segments_are_split_three_three_two_two(shop: Shop) -> None:
    opened = shop.open(10, 4)
    assert isinstance(opened, Opened)
    state = opened.state
    assert (state.sku, state.epoch, state.segment_count, state.gated, state.sequence) == (shop.sku, 1, 4, False, 1)
    assert (state.opened, state.order_count, state.stock) == (10, 0, (3, 3, 2, 2))
    assert shop.state() == state
    assert shop.totals() == (10, 0, 0)


def test_opening_again_changes_nothing_and_says_what_is_there(shop: Shop) -> None:
    shop.open(10, 4)
    before = shop.state()
    assert shop.open(999, 7, gated=True, epoch=9) == AlreadyOpen(before)
    assert shop.state() == before


def test_a_stock_smaller_than_the_segment_count_leaves_the_last_segments_empty(shop: Shop) -> None:
    shop.open(3, 5)
    assert shop.state().stock == (1, 1, 1, 0, 0)
    assert [shop.granted(order_id).parts for order_id in "abc"] == [((0, 1),), ((1, 1),), ((2, 1),)]
    assert shop.totals() == (0, 3, 0)


def test_4096_segments_open_and_one_order_empties_all_of_them(shop: Shop) -> None:
    shop.open(10_000, 4_096)
    assert shop.state().stock == (3,) * 1_808 + (2,) * 2_288
    granted = shop.granted("all", 10_000)
    assert len(granted.parts) == 4_096
    assert sum(units for _, units in granted.parts) == 10_000
    shop.cancel("all")
    assert shop.state().stock == (3,) * 1_808 + (2,) * 2_288


def test_the_largest_stock_is_counted_to_the_unit(shop: Shop) -> None:
    shop.open(STOCK_MAX, 3)
    assert shop.state().stock == (333_333_333_334, 333_333_333_333, 333_333_333_333)
    assert shop.granted("a", 1_000_000_000).parts == ((0, 1_000_000_000),)
    shop.confirm("a")
    assert shop.totals() == (999_000_000_000, 0, 1_000_000_000)


def test_a_later_epoch_is_in_every_answer_and_entry_and_not_in_the_fencing_token(shop: Shop) -> None:
    shop.open(5, 2, epoch=3)
    assert shop.state().epoch == 3
    began_us = shop.now_us()
    grants = [shop.granted(order_id) for order_id in "ab"]
    shop.check_tokens(began_us, *(granted.fencing_token for granted in grants))
    assert [granted.epoch for granted in grants] == [3, 3]
    assert [(entry.epoch, entry.sequence) for entry in shop.ledger()] == [(3, 1), (3, 2), (3, 3)]


def test_an_operation_on_a_pool_that_is_not_open_says_which_is_missing(side: Side) -> None:
    operations: tuple[op.Operation[Any], ...] = (
        op.ReadPool("nowhere"),
        op.Reserve("nowhere", Order("a", 1), 1_000),
        op.ReserveMany("nowhere", (Order("a", 1),), 1_000),
        op.Grant("nowhere", Order("a", 1), "h", 1_000, 1_000, keep_refusal=False),
        op.RenewGrant("nowhere", "a", "h", 1_000, 1_000),
        op.Confirm("nowhere", "a"),
        op.Cancel("nowhere", "a"),
        op.Expire("nowhere", "a"),
        op.SettleMany("nowhere", "cancelled", ("a",)),
        op.ListDue("nowhere", 10),
        op.ExpireDue("nowhere", 10),
        op.Restock("nowhere", "r", 1),
        op.Withdraw("nowhere", "w", 1),
        op.Resize("nowhere", 2),
        op.ClosePool("nowhere"),
        op.ReadLedger("nowhere", 0, 10),
        op.TrimLedger("nowhere", 0),
        op.NoteRelayed("nowhere", None),
    )
    for operation in operations:
        with pytest.raises(PoolMissing, match=r"^pool 'nowhere' is not open") as caught:
            side.execute(operation)
        assert caught.value.sku == "nowhere", operation
    assert side.execute(op.ReadOrders("nowhere", ("a", "b"))) == (None, None)
    assert side.execute(op.ScanOrders("nowhere", 0)) == (0, ())


def test_a_pool_may_have_any_name(side: Side) -> None:
    for word in ("{a}", "a}b", "100 %", "%7B", "ü, 票", "a b", "x" * 500):
        sku = side.name(word)
        side.execute(op.OpenPool(sku, 4, 2, gated=False))
        side.execute(op.Reserve(sku, Order(word[:256], 3), 1_000))
        state = side.execute(op.ReadPool(sku))
        assert (state.sku, state.available, state.reserved) == (sku, 1, 3)
        (record,) = side.execute(op.ReadOrders(sku, (word[:256],)))
        assert record is not None
        assert record.order_id == word[:256]


def test_two_pools_know_nothing_of_each_other(side: Side) -> None:
    first, second = side.name("a"), side.name("a")
    side.execute(op.OpenPool(first, 5, 2, gated=False))
    side.execute(op.OpenPool(second, 9, 3, gated=False))
    side.execute(op.Reserve(first, Order("same id", 2), 1_000))
    assert side.execute(op.ReadPool(first)).available == 3
    assert side.execute(op.ReadPool(second)).available == 9
    assert side.execute(op.ReadOrders(second, ("same id",))) == (None,)

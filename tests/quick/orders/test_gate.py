"""The gate's contract, the same on SQLite and PostgreSQL: rows, confirm, void, reading."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, select

from segmented.errors import InvalidInput, OrderMismatch
from segmented.orders import Gate, connect
from segmented.orders.answers import (
    AlreadyConfirmed,
    AlreadyOpen,
    EpochChanged,
    Missing,
    Opened,
    SegmentRow,
    SegmentTotals,
    SoldOut,
    Superseded,
    Voided,
)
from tests.support.pools.gating import NEW, REPLAY, claim, confirm, sold

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def gate(every_database: str, open_gate: Callable[..., Gate]) -> Gate:
    return open_gate(every_database)


# --- tables and rows ---


def test_opening_stores_a_row_a_segment(gate: Gate) -> None:
    assert gate.open("mug", [3, 0, 2], epoch=4) == Opened(stock=5, segment_count=3, epoch=4)
    rows = (SegmentRow(0, 3, 0, 0, 4), SegmentRow(1, 0, 0, 0, 4), SegmentRow(2, 2, 0, 0, 4))
    totals = gate.totals("mug")
    assert totals == SegmentTotals(quota=5, sold=0, segments=rows, sale_id=totals.sale_id)


def test_opening_again_changes_nothing_and_says_what_is_there(gate: Gate) -> None:
    gate.open("mug", [3, 2], epoch=4)
    confirm(gate, "o-1", epoch=4)
    before = gate.totals("mug")
    assert gate.open("mug", [9, 9, 9], epoch=5) == AlreadyOpen(stock=5, segment_count=2, sold=1, epoch=4)
    assert gate.totals("mug") == before


def test_an_order_behind_a_thousand_that_do_not_exist_is_found(gate: Gate) -> None:
    gate.open("mug", [1])
    confirm(gate, "last")
    found = gate.orders("mug", [*(f"none-{number}" for number in range(1_000)), "last"])
    assert [(row.order_id, row.quantity) for row in found.values()] == [("last", 1)]


def test_a_sku_that_was_never_opened_has_nothing(gate: Gate) -> None:
    assert gate.totals("mug") == SegmentTotals(quota=0, sold=0, segments=())
    assert gate.confirmed_units("mug") == 0
    assert list(gate.each_order("mug")) == []


def test_an_opening_that_makes_no_sense_is_refused(gate: Gate) -> None:
    wrong: list[tuple[str, list[int], int, str]] = [
        ("mug", [], 1, "0 segments"),
        ("mug", [1] * 4_097, 1, "4097 segments"),
        ("mug", [1, -1], 1, "must not be negative"),
        ("mug", [10**12, 1], 1, "nor more than"),
        ("mug", [1], 0, "epoch 0"),
        ("", [1], 1, "sku ''"),
        ("m" * 257, [1], 1, "1 to 256 characters"),
    ]
    for sku, quotas, epoch, said in wrong:
        with pytest.raises(InvalidInput, match=said):
            gate.open(sku, quotas, epoch)
        assert gate.totals(sku).segments == ()


# --- confirm ---


def test_a_confirmed_order_is_stored_with_everything_and_moves_sold(gate: Gate) -> None:
    gate.open("mug", [5, 5])
    assert confirm(gate, "o-1", segment=1, quantity=3, fence=2**33, customer_id="ann") == NEW
    row = gate.orders("mug", ["o-1"])["o-1"]
    assert (row.state, row.quantity, row.segment, row.fence) == ("confirmed", 3, 1, 2**33)
    assert (row.sku, row.epoch, row.customer_id) == ("mug", 1, "ann")
    assert gate.totals("mug").segments == (SegmentRow(0, 5, 0, 0, 1), SegmentRow(1, 5, 3, 2**33, 1))
    assert gate.confirmed_units("mug") == 3


def test_the_time_of_an_order_is_the_databases_own(gate: Gate, every_database: str) -> None:
    gate.open("mug", [5])
    engine = connect(every_database)

    def clock() -> datetime:
        with engine.connect() as connection:
            told: datetime = connection.execute(select(func.current_timestamp())).scalar_one()
        return told.replace(tzinfo=told.tzinfo or UTC)

    before = clock()
    confirm(gate, "o-1")
    made = gate.orders("mug", ["o-1"])["o-1"].created_at
    assert made.tzinfo is UTC
    assert before.replace(microsecond=0) <= made
    assert made.replace(microsecond=0) <= clock()
    engine.dispose()


def test_a_repeat_is_a_replay_and_sells_nothing_again(gate: Gate) -> None:
    gate.open("mug", [5, 5])
    assert confirm(gate, "o-1", quantity=2, fence=7) == NEW
    assert confirm(gate, "o-1", quantity=2, fence=7) == REPLAY
    assert sold(gate) == {0: 2, 1: 0}


def test_a_repeat_from_another_segment_epoch_or_fence_is_a_replay_too(gate: Gate) -> None:
    gate.open("mug", [5, 5])
    confirm(gate, "o-1", quantity=2, fence=7)
    assert confirm(gate, "o-1", quantity=2, segment=1, fence=9) == REPLAY
    assert confirm(gate, "o-1", quantity=2, fence=3) == REPLAY
    assert confirm(gate, "o-1", quantity=2, epoch=2) == REPLAY
    assert confirm(gate, "o-1", quantity=2, segment=8) == REPLAY
    assert gate.totals("mug").segments == (SegmentRow(0, 5, 2, 7, 1), SegmentRow(1, 5, 0, 0, 1))


def test_a_repeat_is_a_replay_when_everything_is_sold(gate: Gate) -> None:
    gate.open("mug", [1])
    confirm(gate, "o-1")
    assert confirm(gate, "o-1") == REPLAY
    assert confirm(gate, "o-2") == SoldOut(total=1, sold=1)


def test_the_same_id_with_other_content_is_an_error_and_changes_nothing(gate: Gate) -> None:
    gate.open("mug", [5])
    confirm(gate, "o-1", customer_id="ann")
    with pytest.raises(OrderMismatch, match="'o-1' exists with other content: quantity 1 is stored, 2 was given"):
        confirm(gate, "o-1", quantity=2)
    with pytest.raises(OrderMismatch, match="another customer is stored, bob was given"):
        confirm(gate, "o-1", customer_id="bob")
    assert confirm(gate, "o-1") == REPLAY
    assert sold(gate) == {0: 1}


def test_the_same_id_under_another_sku_is_another_order(gate: Gate) -> None:
    gate.open("mug", [5])
    gate.open("cup", [5])
    assert confirm(gate, "o-1", quantity=1) == NEW
    assert confirm(gate, "o-1", quantity=2, sku="cup") == NEW
    assert (gate.confirmed_units("mug"), gate.confirmed_units("cup")) == (1, 2)


def test_a_fence_only_grows_and_an_overtaken_holder_changes_nothing(gate: Gate) -> None:
    gate.open("mug", [5, 5])
    assert confirm(gate, "o-1", fence=7) == NEW
    assert confirm(gate, "o-2", fence=7) == NEW
    assert confirm(gate, "o-3", fence=6) == Superseded(fence=7)
    assert confirm(gate, "o-3", fence=8) == NEW
    assert confirm(gate, "o-4", fence=7, segment=1) == NEW
    assert gate.totals("mug").segments == (SegmentRow(0, 5, 3, 8, 1), SegmentRow(1, 5, 1, 7, 1))
    assert set(gate.orders("mug", ["o-1", "o-2", "o-3", "o-4", "o-5"])) == {"o-1", "o-2", "o-3", "o-4"}


def test_without_a_fence_orders_of_a_segment_confirm_in_any_order(gate: Gate) -> None:
    gate.open("mug", [5])
    confirm(gate, "o-1", fence=7)
    assert confirm(gate, "o-2") == NEW
    assert gate.totals("mug").segments == (SegmentRow(0, 5, 2, 7, 1),)
    assert gate.orders("mug", ["o-2"])["o-2"].fence is None


def test_another_epoch_a_missing_segment_and_an_old_fence_come_before_sold_out(gate: Gate) -> None:
    gate.open("mug", [1], epoch=2)
    confirm(gate, "o-1", epoch=2, fence=7)
    assert confirm(gate, "o-2", epoch=1, fence=1) == EpochChanged(epoch=2)
    assert confirm(gate, "o-2", epoch=3) == EpochChanged(epoch=2)
    assert confirm(gate, "o-2", epoch=2, segment=1) == Missing()
    assert confirm(gate, "o-2", epoch=2, sku="cup") == Missing()
    assert confirm(gate, "o-2", epoch=2, fence=6) == Superseded(fence=7)
    assert confirm(gate, "o-2", epoch=2, fence=8) == SoldOut(total=1, sold=1)
    assert gate.totals("mug").segments == (SegmentRow(0, 1, 1, 7, 2),)
    assert gate.orders("mug", ["o-2"]) == {}


def test_a_full_segment_gets_quota_from_the_richest_with_slack(gate: Gate) -> None:
    gate.open("mug", [1, 10, 4])
    confirm(gate, "o-1")
    assert confirm(gate, "o-2") == NEW
    assert gate.totals("mug").segments == (
        SegmentRow(0, 6, 2, 0, 1),
        SegmentRow(1, 5, 0, 0, 1),
        SegmentRow(2, 4, 0, 0, 1),
    )


def test_an_order_larger_than_any_segment_gathers_from_all(gate: Gate) -> None:
    gate.open("mug", [1] * 20)
    assert confirm(gate, "o-1", quantity=15, segment=3) == NEW
    assert confirm(gate, "o-2", quantity=6, segment=3) == SoldOut(total=20, sold=15)
    assert confirm(gate, "o-3", quantity=5, segment=19) == NEW
    totals = gate.totals("mug")
    assert (totals.quota, totals.sold, gate.confirmed_units("mug")) == (20, 20, 20)


def test_moving_quota_obeys_fence_and_epoch_too(gate: Gate) -> None:
    gate.open("mug", [1, 9])
    confirm(gate, "o-1", fence=7)
    assert confirm(gate, "o-2", fence=6) == Superseded(fence=7)
    assert confirm(gate, "o-2", fence=7, epoch=2) == EpochChanged(epoch=1)
    assert sold(gate) == {0: 1, 1: 0}


def test_an_order_that_no_database_can_hold_is_bad_input(gate: Gate) -> None:
    gate.open("mug", [5])
    wrong: list[dict[str, Any]] = [
        *({"quantity": quantity} for quantity in (0, -1, 10**9 + 1)),
        *({"order_id": order_id} for order_id in ("", "o" * 257, "\ud800")),
        {"fence": 2**70},
    ]
    for one in wrong:
        with pytest.raises(InvalidInput):
            gate.confirm(**(claim("o-1") | one))
    assert sold(gate) == {0: 0}


def test_ids_are_kept_as_they_are(gate: Gate) -> None:
    gate.open("mug", [9])
    ids = ["a", "A", "á", "a ", "%s", ":x", "'; --", "\N{SNOWMAN}", "%(given_sku)s"]
    assert [confirm(gate, order_id) for order_id in ids] == [NEW] * 9
    assert [row.order_id for row in gate.each_order("mug")] == sorted(ids, key=str.encode)


# --- void ---


def test_a_void_order_can_never_be_confirmed(gate: Gate) -> None:
    gate.open("mug", [5])
    assert gate.void(order_id="o-1", sku="mug", quantity=2) == Voided(replay=False)
    assert gate.void(order_id="o-1", sku="mug", quantity=2) == Voided(replay=True)
    assert confirm(gate, "o-1", quantity=2) == Voided(replay=True)
    row = gate.orders("mug", ["o-1"])["o-1"]
    assert (row.state, row.quantity, row.segment, row.fence, row.epoch) == ("void", 2, None, None, None)
    assert (sold(gate), gate.confirmed_units("mug")) == ({0: 0}, 0)


def test_a_confirmed_order_cannot_be_voided(gate: Gate) -> None:
    gate.open("mug", [5])
    confirm(gate, "o-1", quantity=2)
    assert gate.void(order_id="o-1", sku="mug", quantity=2) == AlreadyConfirmed()
    assert gate.orders("mug", ["o-1"])["o-1"].state == "confirmed"
    with pytest.raises(OrderMismatch):
        gate.void(order_id="o-1", sku="mug", quantity=1)


# --- reading ---


def test_orders_are_found_by_id_in_any_number(gate: Gate) -> None:
    gate.open("mug", [2_500])
    assert all(confirm(gate, f"o-{number}") == NEW for number in range(40))
    found = gate.orders("mug", (f"o-{number}" for number in range(2_100)))
    assert set(found) == {f"o-{number}" for number in range(40)}


def test_an_order_is_decided_once_it_is_sold_or_void(gate: Gate) -> None:
    gate.open("mug", [5])
    confirm(gate, "sold")
    gate.void(order_id="void", sku="mug", quantity=1)
    asked = [("mug", "sold"), ("mug", "void"), ("mug", "other"), ("cup", "sold")]
    assert [gate.is_decided(sku, order_id) for sku, order_id in asked] == [True, True, False, False]


def test_all_orders_are_read_a_page_at_a_time(gate: Gate) -> None:
    gate.open("mug", [9])
    for order_id in "gcafbed":
        confirm(gate, order_id)
    for page_size in (1, 3, 4, 7, 8):
        assert [row.order_id for row in gate.each_order("mug", page_size=page_size)] == list("abcdefg")

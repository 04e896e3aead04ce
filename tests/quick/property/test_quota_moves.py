"""Quota moves between rows, decided for any rows at all."""

import pytest
from hypothesis import given, strategies as st

from segmented.orders.answers import SegmentRow
from segmented.orders.deciding import QuotaMove, plan_moves, plan_restock, plan_withdrawal

ROWS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=12).map(
    lambda pairs: [
        SegmentRow(segment, sold + spare, sold, fence=0, epoch=1) for segment, (sold, spare) in enumerate(pairs)
    ]
)


def test_a_restock_goes_to_the_segments_that_the_pool_still_has() -> None:
    rows = [SegmentRow(number, 1, 0, 0, 1) for number in range(3)]
    assert plan_restock(rows, 5, segment_count=2) == (QuotaMove(0, 3), QuotaMove(1, 2))


@given(rows=ROWS, data=st.data())
def test_a_move_makes_room_keeps_the_sum_and_leaves_no_row_oversold(
    rows: list[SegmentRow], data: st.DataObject
) -> None:
    spare = {row.segment: row.quota - row.sold for row in rows}
    segment = data.draw(st.integers(0, len(rows) - 1))
    quantity = data.draw(st.integers(1, sum(spare.values()) + 5))
    if quantity > sum(spare.values()):
        with pytest.raises(ValueError, match="lacks"):
            plan_moves(rows, segment, quantity)
        return
    moves = plan_moves(rows, segment, quantity)
    after = spare | {move.segment: spare[move.segment] + move.change for move in moves}
    assert sum(move.change for move in moves) == 0
    assert after[segment] >= quantity
    assert min(after.values()) >= 0
    assert [move.segment for move in moves] == sorted({move.segment for move in moves})
    assert all(move.change < 0 for move in moves if move.segment != segment)


def rows(*spare: int) -> list[SegmentRow]:
    return [SegmentRow(segment, units + 7, 7, fence=0, epoch=1) for segment, units in enumerate(spare)]


def test_the_richest_gives_half_of_what_it_has() -> None:
    assert plan_moves(rows(0, 40, 60), 0, 1) == (QuotaMove(0, 30), QuotaMove(2, -30))


def test_of_the_equally_rich_the_first_gives() -> None:
    assert plan_moves(rows(0, 4, 4), 0, 1) == (QuotaMove(0, 2), QuotaMove(1, -2))


def test_the_last_units_are_gathered_from_as_many_as_it_takes() -> None:
    assert plan_moves(rows(1, 0, 2, 1), 0, 4) == (QuotaMove(0, 3), QuotaMove(2, -2), QuotaMove(3, -1))


def test_a_row_with_room_needs_nothing() -> None:
    assert plan_moves(rows(3, 9), 0, 3) == ()


def test_slack_halves_so_few_orders_have_to_move_quota() -> None:
    """1,000 units in one row, sold from another: a move halves what is there, so 11 do, not 1,000."""
    spare, moved = [0, 1_000], 0
    for _ in range(1_000):
        moves = plan_moves(rows(*spare), 0, 1)
        moved += bool(moves)
        for move in moves:
            spare[move.segment] += move.change
        spare[0] -= 1
    assert (spare, moved) == ([0, 0], 11)


# --- restock and withdrawal ---


@given(rows=ROWS, units=st.integers(1, 10**12), segment_count=st.integers(1, 15))
def test_a_restock_is_even_over_the_segments_that_are_open(
    rows: list[SegmentRow], units: int, segment_count: int
) -> None:
    moves = plan_restock(rows, units, segment_count)
    open_count = min(segment_count, len(rows))
    assert sum(move.change for move in moves) == units
    assert [move.segment for move in moves] == list(range(min(open_count, units)))
    assert {move.change for move in moves} <= {units // open_count, units // open_count + 1}


@given(rows=ROWS, data=st.data())
def test_a_withdrawal_takes_its_units_and_leaves_no_row_oversold(rows: list[SegmentRow], data: st.DataObject) -> None:
    spare = {row.segment: row.quota - row.sold for row in rows}
    units = data.draw(st.integers(1, sum(spare.values()) + 5))
    if units > sum(spare.values()):
        with pytest.raises(ValueError, match="should be withdrawn, but the rows have"):
            plan_withdrawal(rows, units)
        return
    moves = plan_withdrawal(rows, units)
    assert sum(move.change for move in moves) == -units
    assert [move.segment for move in moves] == sorted({move.segment for move in moves})
    assert all(0 < -move.change <= spare[move.segment] for move in moves)


def test_a_withdrawal_takes_from_each_row_in_proportion_to_what_it_has_left() -> None:
    assert plan_withdrawal(rows(10, 0, 30), 20) == (QuotaMove(0, -5), QuotaMove(2, -15))
    assert plan_withdrawal(rows(1, 1, 1), 2) == (QuotaMove(0, -1), QuotaMove(1, -1))


def test_a_restock_leaves_rows_of_segments_that_went_away_as_they_are() -> None:
    assert plan_restock(rows(3, 0, 9, 9), 5, 2) == (QuotaMove(0, 3), QuotaMove(1, 2))

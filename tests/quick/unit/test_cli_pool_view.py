"""What `segmented pool show` makes of a pool's state, without a server."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from segmented.cli.pool_view import segment_rows, total_rows
from segmented.models import PoolState

STATE: Final = PoolState(
    sku="concert",
    epoch=1,
    segment_count=3,
    gated=False,
    sequence=7,
    opened=10,
    available=6,
    reserved=1,
    confirmed=3,
    order_count=4,
    stock=(2, 2, 2),
)


def totals(state: PoolState) -> dict[str, str]:
    return {row[0]: row[1] for row in total_rows(state)}


def test_up_to_twenty_four_segments_have_a_row_each() -> None:
    heads, rows = segment_rows(tuple(range(24)))
    assert heads == ("segment", "units")
    assert rows == [(str(number), str(number)) for number in range(24)]


def test_more_segments_are_folded_into_ranges_that_leave_none_out() -> None:
    heads, rows = segment_rows((5, *([0] * 9), *range(40)), rows_max=5)
    assert heads == ("segments", "units", "least", "most", "empty")
    assert rows == [
        ("0-9", "5", "0", "5", "9"),
        ("10-19", "45", "0", "9", "1"),
        ("20-29", "145", "10", "19", "0"),
        ("30-39", "245", "20", "29", "0"),
        ("40-49", "345", "30", "39", "0"),
    ]


def test_the_largest_pool_fits_on_a_screen() -> None:
    _, rows = segment_rows((1,) * 4_096)
    assert len(rows) == 24
    assert sum(int(row[1]) for row in rows) == 4_096
    assert rows[-1][0] == "3933-4095"


def test_a_pool_is_open_sold_out_or_closed() -> None:
    assert STATE.condition == "open"
    assert replace(STATE, available=0).condition == "sold out, 1 reserved may come back"
    assert replace(STATE, available=0, reserved=0).condition == "sold out"
    assert replace(STATE, is_closed=True, available=0).condition == "closed"


def test_what_was_moved_and_who_is_limited_is_told() -> None:
    rows = totals(replace(STATE, restocked=5, withdrawn=2, limit_per_customer=4, gated=True))
    assert (rows["stocked"], rows["restocked"], rows["withdrawn"]) == ("13", "5", "2")
    assert (rows["limit per customer"], rows["decided by"]) == ("4", "an order database")
    assert "restocked" not in totals(STATE)


def test_a_sku_cannot_steer_the_terminal() -> None:
    assert totals(replace(STATE, sku="a\x1b[2Jb"))["sku"] == r"'a\x1b[2Jb'"

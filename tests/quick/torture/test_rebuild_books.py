"""The judge of a rebuilt sale, fed with numbers that were doctored, and the p99 that the other sale is judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.torture.judge import wrong_after_rebuild, wrong_at_end
from tests.torture.rebuild.run import Round, p99, report_of
from tests.torture.rebuild.sale import RebuildOptions, Sale

if TYPE_CHECKING:
    from tests.torture.report import Report

SALE: Final = Sale(confirmed=1_000, reserved=20, lost=5)
POOL: Final = {"confirmed": 1_015, "reserved": 5, "available": 5, "lost": 5, "epoch": 2}
BOOKS: Final = {
    "confirmed_orders": 1_015,
    "confirmed_units": 1_015,
    "quota": 1_025,
    "sold": 1_015,
    "lowest_epoch": 2,
    "highest_epoch": 2,
}


def test_a_million_orders_have_10000_reserved_and_5000_lost_ones() -> None:
    sale = RebuildOptions().sale
    assert (sale.confirmed, sale.reserved, sale.lost) == (1_000_000, 10_000, 5_000)
    assert (len(sale.finished), len(sale.cancelled), len(sale.still_open)) == (5_000, 2_500, 2_500)
    assert (sale.sold, sale.stock, sale.free) == (1_010_000, 1_017_500, 5_000)


def test_exact_books_are_right() -> None:
    assert wrong_after_rebuild(SALE, 1, POOL, BOOKS) == []


def test_every_number_that_is_wrong_is_named() -> None:
    pool = POOL | {"available": 6}
    assert wrong_after_rebuild(SALE, 1, pool, BOOKS) == ["rebuild 1: units free in the pool: 6, not 5"]
    books = BOOKS | {"sold": 1_014}
    assert wrong_after_rebuild(SALE, 1, POOL, books) == ["rebuild 1: units sold by segment rows: 1,014, not 1,015"]
    assert len(wrong_at_end(SALE, POOL, BOOKS)) == 6


def test_the_p99_is_the_value_that_one_in_a_hundred_exceeds() -> None:
    assert p99([number / 1_000 for number in range(1, 101)]) == 99.0
    assert p99([0.001]) == 1.0
    assert p99([]) == 0.0


def test_a_rebuild_that_others_feel_is_found() -> None:
    calm = [(number / 1_000, 0.001) for number in range(1_000)]
    assert results([*calm, *((2.0 + number / 1_000, 0.0019) for number in range(1_000))]).broken == []
    found = results([*calm, *((2.0 + number / 1_000, 0.002) for number in range(1_000))])
    assert found.broken == [
        "the other sale's p99 was 2.00 ms during rebuilds and 1.00 ms before them, the bound is a ratio of 2"
    ]


def test_a_rebuild_that_takes_too_long_is_found() -> None:
    report = report_of(RebuildOptions().sale, [Round(2.0, 32.0, 0.0, [])], [], {})
    assert report.broken == ["a rebuild took 30.0 s, the bound is 30 s"]


def results(samples: list[tuple[float, float]]) -> Report:
    """Return the report of one rebuild from second 2 to second 3."""
    return report_of(RebuildOptions().sale, [Round(2.0, 3.0, 0.0, samples)], [], {})

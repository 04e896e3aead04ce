from __future__ import annotations

import numpy as np
import pytest

from bench import sizing
from bench.engine.percentiles import at_ms, histogram_of


def test_the_bound_is_lanes_over_hold() -> None:
    assert [sizing.bound_per_s(*one) for one in ((1, 0.02), (20, 0.025), (64, 0.02))] == [50.0, 800.0, 3_200.0]


def test_the_stock_lasts_for_the_seconds_at_the_bound_with_enough_orders_to_measure() -> None:
    assert sizing.stock_for(50.0, 15.0) == 750
    assert sizing.stock_for(50.1, 15.0) == 752  # a started unit is a unit
    assert sizing.stock_for(1.0, 2.0) == 20


def test_a_cell_is_stocked_by_its_calibration_or_the_median_of_its_runs_if_higher() -> None:
    paces: list[list[float]] = [[], [400.0], [400.0, 1_000.0, 1_200.0], [2_400.0]]
    assert [sizing.rate_to_expect(800.0, one) for one in paces] == [800.0, 800.0, 1_000.0, 2_400.0]


def test_a_tenth_is_warm_up_and_a_second_at_most() -> None:
    assert [sizing.warm_up(seconds) for seconds in (2.0, 10.0, 15.0)] == [0.2, 1.0, 1.0]


def test_calibration_lasts_for_ten_holds() -> None:
    assert [sizing.calibration(hold) for hold in (0.0, 0.02, 0.15, 0.5)] == [1.5, 1.5, 1.5, 5.0]


def test_a_sale_of_15_seconds_is_ended_after_25_and_a_half() -> None:
    assert sizing.time_limit(15.0) == 25.5
    assert sizing.drain(64, 0.02) == pytest.approx(10 + 2 * 64 * 0.03)


def test_oversold_is_what_was_sold_beyond_the_stock() -> None:
    assert [sizing.oversold(sold, 10) for sold in (9, 10, 11)] == [0, 0, 1]


def test_a_wait_too_short_to_measure_is_a_microsecond_and_one_too_long_stays_in() -> None:
    def waits(*seconds: float) -> list[float]:
        found = histogram_of(np.array(seconds))
        return [at_ms(found, percent) for percent in (50, 99, 100)]

    assert waits(*[0.001] * 98, *[0.5] * 2) == pytest.approx([1.0, 500.0, 500.0], rel=0.001)
    assert (waits(0.0), waits()) == ([0.001] * 3, [0.0] * 3)
    assert waits(100_000.0)[2] == pytest.approx(600_000.0, rel=0.001)

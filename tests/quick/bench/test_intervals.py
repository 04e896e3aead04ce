"""The intervals of the bench: exact ones of a few runs, and what they cover over many made-up sessions."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pytest

from bench.analysis.intervals import Estimate, mean_of, median_of, paired_ratio, rate_of, unpaired_ratio

RATES: Final = (100.0, 102.0, 98.0, 101.0, 99.0, 103.0, 97.0, 100.0, 100.0, 100.0)
SPREAD: Final = 0.11
"""Standard deviation of the log rates of the published session's cells, in the median cell."""
SLOW_SHARE: Final = 0.04
"""Share of runs that are slower by `SLOW_BY` such deviations, as in the published session."""
SLOW_BY: Final = 5.0
SESSIONS: Final = 10_000
TRUE: Final = math.exp(-SPREAD * SLOW_BY * SLOW_SHARE)


def test_an_interval_of_rates_holds_their_geometric_mean_and_is_students() -> None:
    found = rate_of(RATES)
    logs = np.log(RATES)
    half = 2.2621571627 * logs.std(ddof=1) / math.sqrt(10)  # t of 9 degrees of freedom, from a printed table
    assert (found.n, found.method) == (10, "t")
    assert (found.value, found.low, found.high) == pytest.approx(
        [math.exp(logs.mean() + by) for by in (0, -half, half)], rel=1e-9
    )


def test_two_runs_have_no_interval_and_equal_ones_have_a_point() -> None:
    two = mean_of([1.0, 3.0])
    assert (two.value, two.low, two.high, two.why_no_interval) == (2, None, None, "2 runs give no interval: it takes 3")
    assert str(two) == "2 (n = 2, no interval)"
    assert mean_of([5.0] * 4) == Estimate(5.0, 5.0, 5.0, 4, "all equal")
    assert str(mean_of([51_521.0] * 4)) == "51,521"
    assert str(Estimate(27_740.4, 25_790, 30_240, 10, "t")) == "27,740 [25,790, 30,240]"
    for estimate in (mean_of, rate_of, median_of):
        with pytest.raises(ValueError, match="no run to estimate from"):
            estimate([])


def test_the_interval_of_a_median_ends_at_values_and_needs_six() -> None:
    assert median_of([1.0, 2.0, 90.0]) == Estimate(2.0, None, None, 3, "none")
    assert median_of([6.0, 1.0, 2.0, 5.0, 4.0, 3.0]) == Estimate(3.5, 1.0, 6.0, 6, "order")
    assert median_of([float(one) for one in range(1, 11)]) == Estimate(5.5, 2.0, 9.0, 10, "order")


def test_pairs_take_out_what_slowed_a_whole_round() -> None:
    slow = {number: 100.0 * (1 + number) for number in range(5)}
    found = paired_ratio({number: rate * 2 for number, rate in slow.items()}, slow)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))
    assert paired_ratio({1: 1.0}, {2: 1.0}) is None
    assert unpaired_ratio([], [1.0]) is None


def test_the_ratio_of_two_cells_is_that_of_their_rates_paired_or_not() -> None:
    above, below = [2.0, 8.0, 4.0], [1.0, 1.0, 8.0]
    paired = paired_ratio(dict(enumerate(above)), dict(enumerate(below)))
    unpaired = unpaired_ratio(above, below)
    assert paired is not None
    assert unpaired is not None
    assert paired.value == unpaired.value == pytest.approx(rate_of(above).value / rate_of(below).value) == 2


def _drawn(seed: int, runs: int) -> list[list[float]]:
    """Return the rates of one cell's runs in many sessions: lognormal, some slower by the measured outliers."""
    generator = np.random.default_rng(seed)
    is_slow = generator.random((SESSIONS, runs)) < SLOW_SHARE
    found: list[list[float]] = np.exp(
        SPREAD * (generator.standard_normal((SESSIONS, runs)) - SLOW_BY * is_slow)
    ).tolist()
    return found


def _share(found: list[bool]) -> float:
    return sum(found) / len(found)


def _holds(found: Estimate | None, true: float) -> bool:
    return found is not None and (found.low or 0) <= true <= (found.high or 0)


@pytest.mark.long
@pytest.mark.parametrize("runs", [5, 10])
def test_95_in_100_intervals_of_a_rate_hold_it(runs: int) -> None:
    assert 0.935 <= _share([_holds(rate_of(one), TRUE) for one in _drawn(20_261_128, runs)]) <= 0.965


@pytest.mark.long
@pytest.mark.parametrize("runs", [5, 10])
def test_95_in_100_intervals_of_a_ratio_hold_it(runs: int) -> None:
    """Outliers on both sides make the interval of five pairs wider than it needs to be."""
    pairs = list(zip(_drawn(1, runs), _drawn(2, runs), strict=True))
    paired = [_holds(paired_ratio(dict(enumerate(one)), dict(enumerate(other))), 1.0) for one, other in pairs]
    unpaired = [_holds(unpaired_ratio(one, other), 1.0) for one, other in pairs]
    assert all(0.935 <= _share(found) <= 0.975 for found in (paired, unpaired))


@pytest.mark.long
def test_all_intervals_of_a_family_hold_their_values_together_in_95_of_100_sessions() -> None:
    cells, drawn = 20, _drawn(20_261_130, 10)
    sessions = [drawn[place : place + cells] for place in range(0, SESSIONS, cells)]

    def together(family: int) -> float:
        return _share([all(_holds(rate_of(one, family=family), TRUE) for one in session) for session in sessions])

    assert together(1) < 0.6
    assert together(cells) > 0.9

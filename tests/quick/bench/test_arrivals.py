"""Schedules of arrivals: the same seed gives the same times, the rate is what was asked, and the end is the end."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.engine.arrivals import Spike, poisson, profile_of, schedule_of, spike, units_asked
from bench.engine.cell import Cell
from segmented.errors import InvalidInput

SPIKE = Spike(base=100.0, height=1_000.0, at=2.0, decline=1.5)


def test_a_seed_decides_every_time() -> None:
    assert np.array_equal(poisson(500, 10, seed=7), poisson(500, 10, seed=7))
    assert np.array_equal(spike(SPIKE, 10, seed=7), spike(SPIKE, 10, seed=7))
    assert not np.array_equal(poisson(500, 10, seed=7)[:10], poisson(500, 10, seed=8)[:10])


def test_times_ascend_and_none_is_at_or_beyond_the_end() -> None:
    for times in (poisson(500, 10, seed=1), spike(SPIKE, 10, seed=1)):
        assert (np.diff(times) >= 0).all()
        assert times[0] >= 0
        assert times[-1] < 10


def test_poisson_arrivals_have_the_rate_and_gaps_as_varied_as_their_mean() -> None:
    times = poisson(1_000, 200, seed=3)
    assert len(times) == pytest.approx(200_000, abs=4 * math.sqrt(200_000))
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.02)


def test_a_spike_has_its_base_its_height_and_its_decline() -> None:
    assert SPIKE.rate(np.array([0.0, 1.999, 2.0, 3.5])).tolist() == pytest.approx(
        [100.0, 100.0, 1_000.0, 100.0 + 900.0 / math.e]
    )
    assert SPIKE.expected(2.0) == 200.0
    assert SPIKE.expected(3.5) == pytest.approx(350.0 + 900.0 * 1.5 * (1 - 1 / math.e))
    many = np.concatenate([spike(SPIKE, 10, seed=seed) for seed in range(100)])
    counts, _ = np.histogram(many, bins=[0.0, 1.0, 2.0, 3.5, 10.0])
    wanted = 100 * np.diff([SPIKE.expected(at) for at in (0.0, 1.0, 2.0, 3.5, 10.0)])
    assert (np.abs(counts - wanted) < 4 * np.sqrt(wanted)).all()


def test_an_open_cell_asks_for_its_units_and_a_closed_one_has_no_schedule() -> None:
    cell = Cell(strategy="global-lock", section="none", loop="open", offered_per_s=300, quantity=2, batch=3)
    calls = schedule_of(cell, warm_up=1.0, seconds=4.0, seed=5)
    assert np.array_equal(calls, poisson(100, 5.0, seed=5))
    assert units_asked(cell, warm_up=1.0, seconds=4.0, seed=5) == len(calls) * 6
    flash = cell.model_copy(update={"arrivals": "spike", "batch": 1})
    assert profile_of(flash, warm_up=1.0, seconds=10.0) == Spike(base=30.0, height=300.0, at=3.0, decline=2.0)
    closed = Cell(strategy="global-lock", section="none")
    with pytest.raises(InvalidInput, match="is a closed loop, which has no schedule"):
        schedule_of(closed, warm_up=1.0, seconds=4.0, seed=5)

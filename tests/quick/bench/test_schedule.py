"""Rounds are random orders that the seed decides, and the time left is told from what runs have taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.engine.grid import grid_of
from bench.engine.schedule import START_SECONDS, Estimate, planned_seconds, turns_of, wanted
from tests.support.bench.plans import small_plan

if TYPE_CHECKING:
    from pathlib import Path


def test_each_cell_and_arm_runs_once_a_round_in_another_order(tmp_path: Path) -> None:
    grid = replace(grid_of(small_plan(tmp_path)), rounds=6)
    turns = turns_of(grid)
    assert [turn.number for turn in turns] == list(range(1, 37))
    each = Counter((turn.round, turn.planned.key, turn.arm) for turn in turns)
    assert len(each) == 6 * 6
    assert set(each.values()) == {1}
    orders = {tuple((one.planned.key, one.arm) for one in turns if one.round == number) for number in range(1, 7)}
    assert len(orders) == 6
    assert len({turn.seed for turn in turns}) == 36


def test_the_plan_says_how_long_it_takes(tmp_path: Path) -> None:
    grid = grid_of(small_plan(tmp_path))
    # A round: K=1, two loads of 0.5 s; none, and K=4 twice, of 0.6 s. Calibrated: K=1, 4, none, a capacity 5 times.
    runs = 2 * (3 * 0.5 + 3 * 0.6 + 6 * START_SECONDS)
    assert round(planned_seconds(grid), 6) == round(runs + 8 * (0.4 + START_SECONDS), 6)


def test_the_time_left_comes_from_this_sessions_own_runs(tmp_path: Path) -> None:
    grid = grid_of(small_plan(tmp_path))
    turns = turns_of(grid)
    estimate = Estimate(grid.calibration)
    assert not estimate.is_known
    first = next(one for one in grid.cells if one.key.startswith("segment-locks K=1 "))
    estimate.calibrated(1.4)  # one second beside the sale of 0.4 s
    estimate.took(first, 3.5)  # three seconds beside it
    assert estimate.is_known
    assert estimate.run(first) == 3.5
    other = next(one for one in grid.cells if one.key != first.key and one.seconds == 0.6)
    assert estimate.run(other) == 0.6 + 2.0
    known = set().union(*(wanted(one) for one in grid.cells))
    left = [turn for turn in turns if turn.planned.key in {first.key, other.key} and turn.round == 2]
    arms = len(other.arms)
    assert estimate.left(left, known) == 3.5 + arms * 2.6
    assert estimate.left(left, known - wanted(other)) == 3.5 + arms * 2.6 + 0.4 + 2.0

"""The published plan asks for every cell that the rules need: a session of it that went well could be published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.engine.grid import grid_of
from bench.engine.plan import PLAN_FILE, read_plan
from bench.engine.record import ResultFile
from bench.lint import RULES
from bench.lint.subject import Subject
from tests.support.bench.records import end_line, lanes_of, run, session_line

if TYPE_CHECKING:
    from pathlib import Path

    from bench.engine.grid import PlannedCell
    from bench.engine.record import Run

CAPACITY = 780.0
"""Orders a second of the cell that open loops are a share of: 16 segments, 20.5 ms."""
BY_CELLS = ("R1", "R6", "R7", "R8", "R14", "R15", "R16", "R17", "R21", "R24")


def plausible(planned: PlannedCell, arm: str) -> Run:
    """Return a run of it at its bound."""
    cell = planned.at(CAPACITY)
    lanes = max(2, lanes_of(cell)) if cell.segments > 1 else lanes_of(cell)
    offered = None if cell.offered_per_s is None else min(CAPACITY, cell.offered_per_s)
    found = run(cell, orders_per_s=offered, n=100, wait_cv=0.0, lanes=lanes, offered_percent=planned.percent)
    return found.model_copy(update={"arm": arm, "sweeps": planned.sweeps})


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Return one round of the plan."""
    runs = tuple(plausible(planned, arm) for planned in grid_of(read_plan(PLAN_FILE)).cells for arm in planned.arms)
    folder: Path = tmp_path_factory.mktemp("results")
    return Subject(ResultFile(session=session_line(), runs=runs, end=end_line(len(runs))), folder)


def test_the_plan_has_the_cells_that_a_rule_needs(subject: Subject) -> None:
    found = {rule.number: rule.verdict(subject).outcome for rule in RULES if rule.number in BY_CELLS}
    assert found == dict.fromkeys(BY_CELLS, "holds")

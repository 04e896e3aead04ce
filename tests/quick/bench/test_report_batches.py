"""F12 and F13: a p99 of several runs is that of all their calls, and one of too few calls is not drawn at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.engine.cell import Cell
from bench.engine.record import ResultFile
from bench.report.drawn import Drawn
from bench.report.facts import Facts
from bench.report.figures.batches import durability
from tests.support.bench.records import end_line, run, session_line, times

if TYPE_CHECKING:
    from bench.engine.record import Run

IN_MEMORY = Cell(strategy="segment-locks", segments=16, section="none")
COMMITTED = IN_MEMORY.model_copy(update={"section": "commit"})


def lasting(cell: Cell, number: int, milliseconds: float, calls: int) -> Run:
    """One run of calls that all take as long."""
    one = run(cell, orders_per_s=1_000.0, run=number, round=number)
    service = times(milliseconds, n=calls)
    return one.model_copy(update={"times": one.times.model_copy(update={"service": service})})


def p99_bars(*runs: Run) -> list[float]:
    """Return the lengths of the right panel's bars."""
    found = durability(Facts(ResultFile(session=session_line(), runs=runs, end=end_line(len(runs)))))
    assert isinstance(found, Drawn)
    latency = found.figure.axes[1]
    assert latency.get_xlabel().startswith("p99")
    return [round(bar.get_width(), 1) for container in latency.containers for bar in getattr(container, "patches", ())]


def test_the_p99_of_two_runs_is_that_of_all_their_calls_and_not_a_mean() -> None:
    fast, slow = lasting(IN_MEMORY, 1, 10.0, 90_000), lasting(IN_MEMORY, 2, 500.0, 500)
    committed = [lasting(COMMITTED, number, 20.0, 2_000) for number in (1, 2)]
    assert p99_bars(fast, slow, *committed) == pytest.approx([10.0, 20.0], rel=0.001)


def test_a_p99_of_too_few_calls_is_not_drawn_as_no_time_at_all() -> None:
    plenty = [lasting(IN_MEMORY, number, 10.0, 2_000) for number in (1, 2)]
    few = [lasting(COMMITTED, number, 20.0, 200) for number in (1, 2)]
    assert p99_bars(*plenty, *few) == pytest.approx([10.0], rel=0.001)

"""The results file as the rules use it (runs by cell, runs with a throughput, comparable cells), and their verdicts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal

from bench.engine.grid import grid_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.engine.cell import Cell
    from bench.engine.grid import Grid
    from bench.engine.plan import LoadedPlan
    from bench.engine.record import ResultFile, Run

Outcome = Literal["holds", "broken", "not applicable"]
NAMED_MAX: Final = 3
"""Maximum number of runs or cells that a sentence names; the others are counted."""
SEGMENTED: Final = "segment-locks"
"""The strategy whose granularity is measured."""
ONE_LOCK: Final = "global-lock"
ONE_SCRIPT: Final = "lock-free"
BY_WORKERS: Final = frozenset({"celery-one", "celery-batched"})
"""Strategies whose slow step runs in another process, so that buyers do not know when it began."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, and one sentence of evidence."""

    outcome: Outcome
    evidence: str


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """A rule and its verdict."""

    rule: str
    """`R1` to `R24`."""
    title: str
    outcome: Outcome
    evidence: str


def holds(evidence: str) -> Verdict:
    """Return the verdict that the rule holds."""
    return Verdict("holds", evidence)


def broken(evidence: str) -> Verdict:
    """Return the verdict that the rule is broken, and where."""
    return Verdict("broken", evidence)


def not_applicable(evidence: str) -> Verdict:
    """Return the verdict that the file has nothing that the rule applies to."""
    return Verdict("not applicable", evidence)


def named(found: Iterable[object]) -> str:
    """Return the first names, and the number of the others."""
    each = [str(one) for one in found]
    rest = len(each) - NAMED_MAX
    return ", ".join(each[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True)
class Subject:
    """A results file and its folder."""

    results: ResultFile
    folder: Path

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, including void ones, in the order in which they ran."""
        return self.results.runs

    @cached_property
    def measured(self) -> list[Run]:
        """Completed runs, kept or void; the others have no figures."""
        return [run for run in self.runs if run.window_s > 0]

    @cached_property
    def kept(self) -> list[Run]:
        """Runs with a throughput."""
        return [run for run in self.runs if run.orders_per_s is not None]

    @cached_property
    def open_runs(self) -> list[Run]:
        """Completed open-loop runs."""
        return [run for run in self.measured if run.cell.loop == "open"]

    @cached_property
    def cells(self) -> dict[str, list[Run]]:
        """Runs by cell, both arms together."""
        found: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            found[run.cell_id].append(run)
        return dict(found)

    @cached_property
    def rates(self) -> dict[Cell, float]:
        """Mean throughput by cell."""
        found: dict[Cell, list[float]] = defaultdict(list)
        for run in self.kept:
            found[run.cell].append(run.orders_per_s or 0.0)
        return {cell: fmean(each) for cell, each in found.items()}

    def grid(self, loaded: LoadedPlan) -> Grid:
        """Lay out the part of a plan that the first line says was asked for. Raises InvalidInput if none is."""
        session = self.results.session
        return grid_of(loaded, is_quick=session.is_quick, only=session.sweeps)

    def capacity(self, cell: Cell) -> float | None:
        """Return the highest closed-loop rate of the same strategy, granularity and critical section."""
        asked = setting(cell, without=BY_LOAD)
        found = [rate for one, rate in self.rates.items() if one.loop == "closed" and setting(one, BY_LOAD) == asked]
        return max(found, default=None)


BY_LOAD: Final = ("loop", "buyers", "offered_per_s", "arrivals", "stock", "case")
"""Fields that change a cell's load, but not its operation."""


def setting(cell: Cell, without: Iterable[str]) -> tuple[tuple[str, Any], ...]:
    """Return a cell as a key without some fields: cells that differ only in these are comparable."""
    values = cell.model_dump(exclude=set(without))
    return tuple(sorted(values.items()))


def without_redis(run: Run) -> bool:
    """Return whether only the database sells, so that Redis counts say nothing about orders."""
    return run.cell.strategy.startswith("pg-")


def labels(runs: Iterable[Run]) -> list[str]:
    """Return labels of runs: number and cell."""
    return [f"run {run.run} ({run.cell_id})" for run in runs]

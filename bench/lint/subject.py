"""The results file as the rules look at it: runs by cell, those with a throughput, and what a cell is compared with."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.granularity.cell import Cell
    from bench.granularity.record import ResultFile, Run

SEGMENTED: Final = "segment-locks"
"""The strategy whose granularity is the question."""
ONE_LOCK: Final = "global-lock"
ONE_SCRIPT: Final = "lock-free"
BY_WORKERS: Final = frozenset({"celery-one", "celery-batched"})
"""Strategies whose slow step is another process's, so that buyers cannot tell when it began."""


@dataclass(frozen=True)
class Subject:
    """A results file, and the folder that it lies in."""

    results: ResultFile
    folder: Path

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, void ones too, in the order in which they ran."""
        return self.results.runs

    @cached_property
    def measured(self) -> list[Run]:
        """Runs that came to their end, kept or void; the others have no figures that could be looked at."""
        return [run for run in self.runs if run.window_s > 0]

    @cached_property
    def kept(self) -> list[Run]:
        """Runs that have a throughput."""
        return [run for run in self.runs if run.orders_per_s is not None]

    @cached_property
    def open_runs(self) -> list[Run]:
        """Runs of an arrival schedule that came to their end."""
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
        """Mean throughput of every cell that has one."""
        found: dict[Cell, list[float]] = defaultdict(list)
        for run in self.kept:
            found[run.cell].append(run.orders_per_s or 0.0)
        return {cell: fmean(each) for cell, each in found.items()}

    def capacity(self, cell: Cell) -> float | None:
        """Return the highest closed-loop rate of the same strategy, granularity and critical section."""
        asked = setting(cell, without=BY_LOAD)
        found = [rate for one, rate in self.rates.items() if one.loop == "closed" and setting(one, BY_LOAD) == asked]
        return max(found, default=None)


BY_LOAD: Final = ("loop", "buyers", "offered_per_s", "arrivals", "stock", "case")
"""What changes a cell's load, and leaves what it does."""


def setting(cell: Cell, without: Iterable[str]) -> tuple[tuple[str, Any], ...]:
    """Return a cell as a key that leaves some of its fields out: cells that differ in these alone are comparable."""
    values = cell.model_dump(exclude=set(without))
    return tuple(sorted(values.items()))


def without_redis(run: Run) -> bool:
    """Tell whether the database sells alone, so that counts of Redis say nothing of an order."""
    return run.cell.strategy.startswith("pg-")


def condition(environment: dict[str, Any], path: str) -> object:
    """Return what the environment says under a dotted path; None where it says nothing."""
    found: Any = environment
    for step in path.split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return found


def labels(runs: Iterable[Run]) -> list[str]:
    """Name runs: number and cell."""
    return [f"run {run.run} ({run.cell_id})" for run in runs]

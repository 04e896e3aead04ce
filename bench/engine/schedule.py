"""The order of the runs, how long a session takes, and the record of a run that failed.

Each round has every cell once, in an order drawn from the seed. The time is estimated by the plan at first, then by the
session's own runs. A run that produced no record, because it or its process failed, counts as void.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench import sizing
from bench.engine.cell import units_asked
from bench.engine.checker import COUNTED
from bench.engine.percentiles import percentiles_of
from bench.engine.record import Checker, Counts, Cpu, Run, Series, Times, Work
from bench.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench.engine.cell import Cell
    from bench.engine.plan import Arm, Grid, PlannedCell

SPIKE_STOCK_SHARE: Final = 0.6
"""Share of a spike's demand that is in stock, so that the sale sells out."""


def stock_of(
    planned: PlannedCell, cell: Cell, seed: int, *, calibrated: Mapping[str, float], paces: Sequence[float]
) -> int:
    """Return the units of a run. `calibrated`: rates by cell; `paces`: orders per second of the cell's earlier runs."""
    if cell.stock is not None:
        return cell.stock
    if cell.loop == "closed":
        rate = sizing.rate_to_expect(calibrated[cell.cell_id], paces)
        return max(sizing.STOCK_MIN, cell.skus, ceil(rate * planned.seconds)) * cell.quantity
    asked = units_asked(cell, warm_up=planned.warm_up, seconds=planned.seconds, seed=seed)
    return max(sizing.STOCK_MIN, cell.skus, ceil(asked * (SPIKE_STOCK_SHARE if cell.arrivals == "spike" else 1)))


SERIES: Final = (*("offered", "sold", "sold_out", "failed", "p50_ms", "max_ms"), *("segment_sold", "left_at", "left"))
START_SECONDS: Final = 1.1
"""Planned seconds of a run beside its sale: server start, fork, audit, end."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A planned run. Its number is its position in the session, so the same plan gives the same turns."""

    number: int
    round: int
    planned: PlannedCell
    arm: Arm
    seed: int


def turns_of(grid: Grid) -> list[Turn]:
    """Return all planned runs in order.

    Arms alternate, A B in one round and B A in the next (ABBA), so that a drift of the machine favours neither. The
    runs between the two are random, like the whole order.
    """
    draw = random.Random(grid.seed)
    turns: list[Turn] = []
    for number in range(1, grid.rounds + 1):
        places = [(planned, place) for planned in grid.cells for place in range(len(planned.arms))]
        draw.shuffle(places)
        met: dict[str, int] = {}
        for planned, _ in places:
            arms = planned.arms if number % 2 else planned.arms[::-1]
            arm = arms[met.get(planned.key, 0)]
            met[planned.key] = met.get(planned.key, 0) + 1
            turns.append(Turn(len(turns) + 1, number, planned, arm, draw.randrange(2**31)))
    return turns


def planned_seconds(grid: Grid) -> float:
    """Return the planned seconds on an otherwise idle machine."""
    runs = sum(len(one.arms) * (one.seconds + START_SECONDS) for one in grid.cells)
    calibrations = grid.calibrations(set().union(*(wanted(one) for one in grid.cells)))
    return grid.rounds * runs + calibrations * (grid.calibration + START_SECONDS)


@dataclass(slots=True)
class Estimate:
    """Estimates the time left from this session's own runs only."""

    calibration: float
    """Seconds of a calibration's sale."""
    extra: list[float] = field(default_factory=list)
    """Seconds of each run and calibration beyond its sale's planned seconds."""
    by_cell: dict[str, list[float]] = field(default_factory=dict)

    def took(self, planned: PlannedCell, seconds: float) -> None:
        """Record the time of a run."""
        self.by_cell.setdefault(planned.key, []).append(seconds)
        self.extra.append(seconds - planned.seconds)

    def calibrated(self, seconds: float) -> None:
        """Record the time of a calibration."""
        self.extra.append(seconds - self.calibration)

    @property
    def is_known(self) -> bool:
        """Return whether anything has been measured."""
        return bool(self.extra)

    def run(self, planned: PlannedCell) -> float:
        """Return the estimated seconds of a run: by the cell's earlier runs, else by other cells' overhead."""
        own = self.by_cell.get(planned.key)
        if own:
            return fmean(own)
        return planned.seconds + (fmean(self.extra) if self.extra else START_SECONDS)

    def turn(self, planned: PlannedCell, *, calibrations: int) -> float:
        """Return the same plus the calibrations that the run needs first."""
        each = self.calibration + (fmean(self.extra) if self.extra else START_SECONDS)
        return self.run(planned) + calibrations * each

    def left(self, turns: Iterable[Turn], calibrated: Iterable[str]) -> float:
        """Return the estimated seconds left."""
        known = set(calibrated)
        seconds = 0.0
        for turn in turns:
            needed = wanted(turn.planned) - known
            seconds += self.turn(turn.planned, calibrations=len(needed))
            known |= needed
        return seconds


def wanted(planned: PlannedCell) -> set[str]:
    """Return the ids of cells to calibrate before a run of this cell."""
    if planned.capacity is not None:
        return {planned.capacity.cell_id}
    is_told = planned.cell.loop == "open" or planned.cell.stock is not None
    return set() if is_told else {planned.cell.cell_id}


def spoken(seconds: float) -> str:
    """Return a duration as text."""
    if seconds < 90:  # noqa: PLR2004  # longer durations are shown in minutes
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"  # noqa: PLR2004  # two hours


def lost_run(turn: Turn, cell: Cell, error: Exception, *, started_at: str) -> Run:
    """Return the record: nothing was measured, and why."""
    planned = turn.planned
    nothing = percentiles_of(np.zeros(0))
    none: dict[str, Any] = dict.fromkeys(COUNTED, 0)
    empty: dict[str, Any] = {name: [] for name in SERIES}
    is_open = cell.loop == "open"
    return Run(
        run=turn.number,
        round=turn.round,
        cell=cell,
        cell_id=cell.cell_id,
        arm=turn.arm,
        sweeps=planned.sweeps,
        seed=turn.seed,
        started_at=started_at,
        orders_per_s=None,
        sold_out_per_s=0.0,
        failed_per_s=0.0,
        void=(f"the run ended without a record: {error}",),
        is_control=STRATEGIES[cell.strategy].is_control,
        warm_up_s=planned.warm_up,
        window_s=0.0,
        drain_s=0.0,
        lanes=0,
        saturated=(),
        counts=Counts(planned=0, sent=0, sold=0, sold_out=0, failed=0, shed=0, first_failure=str(error)),
        checker=Checker(**(none | {"stock": cell.stock or 0}), sold_in_sql=None, audit="none"),
        times=Times(
            service=nothing,
            response=nothing if is_open else None,
            wait=nothing,
            hold=nothing,
            lateness=nothing if is_open else None,
        ),
        work=Work(commands=0, round_trips=0, attempts=0, server_us=0, bytes=0),
        cpu=Cpu(generator=0, redis=0, database=None, machine=0, others=0, steal=0),
        series=Series(bin_s=0.1, window=(0.0, 0.0), **empty),
        fairness=None,
        recorder_share=0.0,
        history=None,
        history_sha256=None,
        guarantees={},
        server={},
        offered_percent=planned.percent,
    )

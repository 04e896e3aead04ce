"""The order of the runs, and how long they take.

Rounds have every cell once, in a random order of their own that the seed decides. The time of a session is estimated
by the plan before it begins, and by its own runs as soon as there are some.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.granularity.grid import Arm, Grid, PlannedCell

START_SECONDS: Final = 1.1
"""What a run takes beside its sale, by the plan: a server that starts, a fork, the audit, the end."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One run to be. Its number is its place in the session, so the same plan gives the same turns again."""

    number: int
    round: int
    planned: PlannedCell
    arm: Arm
    seed: int


def turns_of(grid: Grid) -> list[Turn]:
    """Return all runs in their order.

    Arms go A B in one round and B A in the next (ABBA), so that a drift of the machine is on neither's side; what is
    between the two is random, as everything is.
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
    """Return what the plan comes to on a machine that does nothing else."""
    runs = sum(len(one.arms) * (one.seconds + START_SECONDS) for one in grid.cells)
    calibrations = len(set().union(*(wanted(one) for one in grid.cells)))
    return grid.rounds * runs + calibrations * (grid.calibration + START_SECONDS)


@dataclass(slots=True)
class Estimate:
    """The time left, from what this session's own runs have taken: none of it from another machine or day."""

    calibration: float
    """Seconds of a calibration's sale."""
    extra: list[float] = field(default_factory=list)
    """Seconds of each run and calibration beside its sale's planned seconds."""
    by_cell: dict[str, list[float]] = field(default_factory=dict)

    def took(self, planned: PlannedCell, seconds: float) -> None:
        """Note a run."""
        self.by_cell.setdefault(planned.key, []).append(seconds)
        self.extra.append(seconds - planned.seconds)

    def calibrated(self, seconds: float) -> None:
        """Note a calibration."""
        self.extra.append(seconds - self.calibration)

    @property
    def is_known(self) -> bool:
        """Has anything been measured yet?"""
        return bool(self.extra)

    def run(self, planned: PlannedCell) -> float:
        """Return the seconds that a run of a cell takes: as its runs so far, else as others beside their sales."""
        own = self.by_cell.get(planned.key)
        if own:
            return fmean(own)
        return planned.seconds + (fmean(self.extra) if self.extra else START_SECONDS)

    def turn(self, planned: PlannedCell, *, calibrations: int) -> float:
        """Return the same with the calibrations that it needs first."""
        each = self.calibration + (fmean(self.extra) if self.extra else START_SECONDS)
        return self.run(planned) + calibrations * each

    def left(self, turns: Iterable[Turn], calibrated: Iterable[str]) -> float:
        """Return the seconds that are left."""
        known = set(calibrated)
        seconds = 0.0
        for turn in turns:
            needed = wanted(turn.planned) - known
            seconds += self.turn(turn.planned, calibrations=len(needed))
            known |= needed
        return seconds


def wanted(planned: PlannedCell) -> set[str]:
    """Name the cells that must have been calibrated before a run of this one."""
    if planned.capacity is not None:
        return {planned.capacity.cell_id}
    is_told = planned.cell.loop == "open" or planned.cell.stock is not None
    return set() if is_told else {planned.cell.cell_id}


def spoken(seconds: float) -> str:
    """Say it as people do."""
    if seconds < 90:  # noqa: PLR2004  # from here on minutes say more
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"  # noqa: PLR2004  # two hours

"""Expands the sweeps of a plan to cells. Each cell is measured once a round, however many sweeps share it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal

from bench.engine.cell import RATE_MAX, Cell
from bench.engine.plan import checked_cell
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput
from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.engine.plan import LoadedPlan, Sweep

Arm = Literal["A", "B"]
CAPACITY_SALES: Final = 5
"""Calibrations of a capacity, of which the median counts: all loads of an open loop are shares of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A planned cell: the rate of an open one may be a share of a capacity not measured yet."""

    cell: Cell
    sweeps: tuple[str, ...]
    arms: tuple[Arm, ...] = ("A",)
    seconds: float
    warm_up: float
    percent: float | None = None
    """Arrival rate in percent of the rate of `capacity`."""
    capacity: Cell | None = None

    @property
    def key(self) -> str:
        """Name of the cell before its rate is known."""
        share = (
            "" if self.percent is None or self.capacity is None else f" {self.percent:g}% of {self.capacity.cell_id}"
        )
        return self.cell.cell_id + share

    @property
    def needs_database(self) -> bool:
        """Return whether its runs need an order database."""
        return self.cell.critical_section().commits or STRATEGIES[self.cell.strategy].needs_database

    def at(self, capacity: float) -> Cell:
        """Return the cell with its rate, rounded to three digits."""
        if self.percent is None:
            return self.cell
        offered = float(f"{max(0.1, capacity * self.percent / 100):.3g}")
        return self.cell.model_copy(update={"offered_per_s": min(RATE_MAX, offered)})


@dataclass(frozen=True, slots=True)
class Grid:
    """What a session measures, and how."""

    cells: tuple[PlannedCell, ...]
    rounds: int
    calibration: float
    seed: int
    budget: float | None
    """Seconds for the whole session; None: unlimited."""
    left_out: tuple[str, ...] = ()

    def calibrations(self, cell_ids: Iterable[str]) -> int:
        """Return how many calibrations these cells need: several of a capacity, whose median sets all its loads."""
        capacities = {one.capacity.cell_id for one in self.cells if one.capacity is not None}
        return sum(CAPACITY_SALES if one in capacities else 1 for one in cell_ids)

    @property
    def runs_planned(self) -> int:
        """Number of runs, without calibrations."""
        return self.rounds * sum(len(one.arms) for one in self.cells)


def grid_of(loaded: LoadedPlan, *, is_quick: bool = False, only: tuple[str, ...] = ()) -> Grid:
    """Expand all sweeps, or the sweeps `only`. Raises InvalidInput with file and key."""
    plan = loaded.plan
    try:
        capacities = {name: checked_cell(f"cells.{name}", part) for name, part in plan.cells.items()}
        whole = [_laid_out(loaded, sweep, capacities, is_quick=False) for sweep in plan.sweeps]
        chosen = [sweep for sweep in plan.sweeps if not only or sweep.name in only]
        if is_quick:
            chosen = [sweep for sweep in chosen if sweep.quick is not None]
            cells = _merged(one for sweep in chosen for one in _laid_out(loaded, sweep, capacities, is_quick=True))
        else:
            cells = _merged(one for sweep in chosen for one in whole[plan.sweeps.index(sweep)])
    except InvalidInput as error:
        message = f"{loaded.file}: {error}"
        raise InvalidInput(message) from error
    if not cells:
        message = f"{loaded.file}: nothing is left to measure: no sweep of {', '.join(only) or 'it'} has a quick part"
        raise InvalidInput(message)
    return Grid(
        cells=tuple(cells),
        rounds=plan.quick.rounds if is_quick else plan.rounds,
        calibration=plan.quick.calibration if is_quick else plan.calibration,
        seed=plan.seed,
        budget=plan.quick.budget if is_quick else None,
        left_out=tuple(_left_out(loaded, chosen, cells, is_quick=is_quick)),
    )


def _left_out(loaded: LoadedPlan, chosen: list[Sweep], cells: list[PlannedCell], *, is_quick: bool) -> list[str]:
    plan = loaded.plan
    said = []
    missing = [sweep.name for sweep in plan.sweeps if sweep not in chosen]
    if missing:
        said.append(f"sweeps that are not measured: {', '.join(missing)}")
    if is_quick:
        quick = plan.quick
        said.append(f"of the others, all but {counted(len(cells), 'cell')}")
        rounds = counted(quick.rounds, "round")
        said.append(f"{rounds} of {quick.seconds:g} s a run, instead of {plan.rounds} of {plan.seconds:g} s")
        said.append("so few and so short runs give no interval that is worth publishing")
    return said


def _laid_out(loaded: LoadedPlan, sweep: Sweep, capacities: dict[str, Cell], *, is_quick: bool) -> list[PlannedCell]:
    plan, where = loaded.plan, f"sweeps.{sweep.name}"
    quick = sweep.quick if is_quick else None
    axes = sweep.axes if quick is None else {**sweep.axes, **quick.axes}
    seconds, warm_up = sweep.seconds or plan.seconds, plan.warm_up if sweep.warm_up is None else sweep.warm_up
    if is_quick:
        seconds, warm_up = plan.quick.seconds, plan.quick.warm_up
    found = []
    for values in product(*(_parts(name, axis) for name, axis in axes.items())):
        part: dict[str, Any] = dict(sweep.base)
        for one in values:
            part |= one
        planned = PlannedCell(
            cell=_first_cell(where, part, is_share=sweep.load is not None),
            sweeps=(sweep.name,),
            arms=("A", "B") if sweep.is_aa else ("A",),
            seconds=seconds,
            warm_up=warm_up,
        )
        if sweep.load is None:
            found.append(planned)
            continue
        percents = sweep.load.percent if quick is None or quick.percent is None else quick.percent
        found += [replace(planned, percent=one, capacity=capacities[sweep.load.of]) for one in percents]
    return found


def _first_cell(where: str, part: dict[str, Any], *, is_share: bool) -> Cell:
    if not is_share:
        return checked_cell(where, part)
    if part.get("loop") != "open" or "offered_per_s" in part:
        message = f"{where}.load: shares of a capacity are for an open loop without an offered_per_s of its own"
        raise InvalidInput(message)
    return checked_cell(where, {**part, "offered_per_s": 1.0})


def _parts(name: str, values: list[Any]) -> list[dict[str, Any]]:
    """Return the fields that each value of an axis sets."""
    return [value if isinstance(value, dict) else {name: value} for value in values]


def _merged(cells: Iterable[PlannedCell]) -> list[PlannedCell]:
    """Merge equal cells into one that serves all their sweeps, as long as the longest asks for."""
    found: dict[str, PlannedCell] = {}
    for one in cells:
        known = found.get(one.key)
        if known is None:
            found[one.key] = one
            continue
        longest = max(known, one, key=lambda each: each.seconds)
        found[one.key] = replace(
            longest,
            sweeps=tuple(dict.fromkeys((*known.sweeps, *one.sweeps))),
            arms=max(known.arms, one.arms, key=len),
        )
    return list(found.values())

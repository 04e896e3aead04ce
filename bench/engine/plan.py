"""The plan of a session, committed before anything is measured.

It states what is expected and what would refute it, which cells are measured and how often, what makes a run void, and
when to stop. Each error in a plan is one sentence with file and key, before anything is started.

Its sweeps are expanded to cells. Each cell is measured once a round, however many sweeps share it. A round has every
cell in an order drawn from the seed. The time is estimated by the plan at first, then by the session's own runs.
"""

from __future__ import annotations

import hashlib
import random
import tomllib
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import product
from math import ceil
from pathlib import Path
from statistics import fmean
from string import Template
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from bench import sizing
from bench.engine.cell import RATE_MAX, Cell, Expectation, Frozen, units_asked
from bench.engine.sale import refuse_case
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput
from segmented.files import open_plain
from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PLAN_FILE: Final = Path(__file__).parents[1] / "plan.toml"
"""The published profile."""
OWN_PLAN_FILE: Final = Path(__file__).parents[1] / "own-plan.toml"
"""The plan that compares strategies of one's own, without their cells."""
OWN_SEGMENTS: Final = 16
SCHEMA: Final = "segmented-bench-plan/1"
ROUNDS_MAX: Final = 1_000
SECONDS_MIN: Final = 0.3
SECONDS_MAX: Final = 600.0

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
Sentence = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(ge=SECONDS_MIN, le=SECONDS_MAX)]
Rounds = Annotated[int, Field(ge=1, le=ROUNDS_MAX)]
Percent = Annotated[float, Field(gt=0, le=1_000)]
Part = dict[str, Any]
"""Some fields of a cell. They are validated together, as a whole cell."""
Axes = dict[str, Annotated[list[Any], Field(min_length=1)]]
"""Values by the name of a cell's field, or parts of cells by any other name."""


class Hypothesis(Frozen):
    """An expectation stated before the measurement."""

    id: str
    sentence: Sentence
    sweep: str
    """The sweep that can refute it."""
    refuted_by: Sentence
    expect: tuple[Expectation, ...] = ()
    """Expectations that a program checks, all of which must hold; without any, a reader judges by the figures."""


class Load(Frozen):
    """Open loops at shares of a closed loop's rate in the same session."""

    of: str
    """Name of one of the plan's `cells`."""
    percent: Annotated[list[Percent], Field(min_length=1)]


class Quick(Frozen):
    """Part of a sweep that the quick profile measures."""

    axes: Axes = Field(default_factory=dict)
    percent: list[Percent] | None = None


class Sweep(Frozen):
    """Cells that answer one question: the base with each combination of the axes' values."""

    name: Name
    question: Sentence
    figures: list[Annotated[str, Field(pattern=r"^F([1-9]|1[0-6])$")]] = Field(default_factory=list)
    seconds: Seconds | None = None
    """Seconds of its runs; default: the plan's."""
    warm_up: Annotated[float, Field(ge=0)] | None = None
    base: Part
    axes: Axes = Field(default_factory=dict)
    load: Load | None = None
    is_aa: Annotated[bool, Field(alias="a_and_a")] = False
    """Each cell runs twice a round, as arms A and B: the noise floor."""
    quick: Quick | None = None
    """None if the quick profile leaves the sweep out."""


class QuickProfile(Frozen):
    """Settings of the quick profile."""

    rounds: Rounds
    seconds: Seconds
    warm_up: Annotated[float, Field(ge=0)]
    calibration: Seconds
    budget: Annotated[float, Field(gt=0)]
    """Time limit in seconds: no run is started that would not end in time."""


class Plan(Frozen):
    """A whole plan."""

    schema_: Annotated[Literal["segmented-bench-plan/1"], Field(alias="schema")]
    rounds: Rounds
    seconds: Seconds
    warm_up: Annotated[float, Field(ge=0)]
    calibration: Seconds = 1.3
    """Seconds of the calibration sale, which does not count."""
    seed: Annotated[int, Field(ge=0)]
    stop: Sentence
    """When the session ends, whatever the results are."""
    exclusions: Annotated[list[Sentence], Field(min_length=1)]
    """The reasons that make a run void; there are no others."""
    quick: QuickProfile
    orders: list[str] = Field(default_factory=list)
    """Sweeps of the benchmark `orders`."""
    cells: dict[str, Part] = Field(default_factory=dict)
    """Cells whose rates are the capacities of open loops."""
    hypotheses: Annotated[list[Hypothesis], Field(min_length=1)]
    sweeps: Annotated[list[Sweep], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_coherent(self) -> Self:
        names = [sweep.name for sweep in self.sweeps]
        if self.quick.warm_up >= self.quick.seconds:
            message = f"quick.warm_up: a warm-up of {self.quick.warm_up:g} s leaves nothing of {self.quick.seconds:g} s"
            raise ValueError(message)
        _once("sweeps", names)
        _once("hypotheses", [one.id for one in self.hypotheses])
        for one in self.hypotheses:
            _known(f"hypotheses.{one.id}.sweep", one.sweep, names)
        for name in self.orders:
            _known("orders", name, names)
        for sweep in self.sweeps:
            seconds = self.seconds if sweep.seconds is None else sweep.seconds
            warm_up = self.warm_up if sweep.warm_up is None else sweep.warm_up
            if warm_up >= seconds:
                message = f"sweeps.{sweep.name}.warm_up: a warm-up of {warm_up:g} s leaves nothing of {seconds:g} s"
                raise ValueError(message)
            if sweep.load is not None:
                _known(f"sweeps.{sweep.name}.load.of", sweep.load.of, list(self.cells))
        return self


class LoadedPlan(Frozen):
    """A plan with its file, digest and text."""

    plan: Plan
    text: str
    sha256: str
    file: Path


def read_plan(file: Path) -> LoadedPlan:
    """Read a plan and validate all its cells. Raises InvalidInput: one sentence with file and key."""
    try:
        with open_plain(file) as opened:
            text = opened.read().decode()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not TOML: {error}") from error
    return _loaded(file, text)


def own_plan(names: Sequence[str]) -> LoadedPlan:
    """Return the plan that compares these strategies with one lock, segment locks and no lock."""
    kinds = {name: f", segments = {OWN_SEGMENTS}" if STRATEGIES[name].has_segments else "" for name in names}
    ways = "\n".join(f'    {{ strategy = "{name}"{segments} }},' for name, segments in kinds.items())
    return _loaded(OWN_PLAN_FILE, Template(OWN_PLAN_FILE.read_text(encoding="utf-8")).safe_substitute(ways=ways))


def _loaded(file: Path, text: str) -> LoadedPlan:
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{file} is not TOML: {error}") from error
    try:
        plan = Plan.model_validate(found)
    except ValidationError as error:
        raise InvalidInput(f"{file}: {_dotted(error, found).removeprefix('.').removeprefix(': ')}") from error
    return LoadedPlan(plan=plan, text=text, sha256=hashlib.sha256(text.encode()).hexdigest(), file=file)


def checked_cell(where: str, part: Part) -> Cell:
    """Create a cell of a plan. Raises InvalidInput that names the key; the caller adds the file."""
    name = part.get("strategy")
    if isinstance(name, str) and name not in STRATEGIES:
        raise InvalidInput(f"{where}.strategy: there is no strategy {name!r}{nearest(name, STRATEGIES)}")
    try:
        cell = Cell.model_validate(part, strict=True)
    except ValidationError as error:
        raise InvalidInput(f"{where}{_dotted(error, part)}") from error
    strategy = STRATEGIES[cell.strategy]
    try:
        refuse_case(cell, strategy)
    except InvalidInput as error:
        raise InvalidInput(f"{where}.case: {error}") from error
    if cell.segments > 1 and not strategy.has_segments:
        message = f"{where}.segments: {cell.strategy} has no segments, so K={cell.segments} would change nothing"
        raise InvalidInput(message)
    if cell.skus > 1 and not strategy.has_skus:
        raise InvalidInput(f"{where}.skus: {cell.strategy} sells one sku in a process, so it cannot sell {cell.skus}")
    if cell.batch > 1 and not strategy.has_batches:
        raise InvalidInput(f"{where}.batch: {cell.strategy} sells one order after the other, so it has no batches")
    return cell


def nearest(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    """Return a suggestion for the end of an error message: the nearest known name, or all names."""
    found = get_close_matches(name, list(known), n=1, cutoff=0.5)
    if not known:
        return "; there is none"
    return f"; did you mean {found[0]!r}?" if found else f"; known are: {', '.join(known)}"


def _known(where: str, name: str, names: list[str]) -> None:
    if name not in names:
        what = "cell" if where.endswith(".of") else "sweep"
        raise ValueError(f"{where}: the plan has no {what} {name!r}{nearest(name, names)}")


def _once(where: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{where}: {name!r} is there twice")


def _dotted(error: ValidationError, raw: Part) -> str:
    """Return the first error of a plan, with names of its parts instead of indexes."""
    errors = error.errors()
    # A misspelt key is also a missing key: the error about what was written is more helpful.
    found = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    key = "".join(f".{step}" for step in _named(found["loc"], raw))
    if found["type"] == "missing":
        return f"{key}: is missing"
    if found["type"] == "extra_forbidden":
        return f"{key}: unknown key{nearest(str(found['loc'][-1]), KEYS)}"
    said = found["msg"].removeprefix("Value error, ")
    value = found["input"]
    return f"{key}: {said}" + (f", not {value!r}" if isinstance(value, (str, int, float)) else "")


def _named(steps: tuple[int | str, ...], raw: Any) -> list[str]:  # noqa: ANN401  # whatever TOML has
    """Replace list indexes by the `name` or `id` of the element."""
    names = []
    for step in steps:
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            raw = None
        is_place = isinstance(step, int)
        names.append(str(raw.get("name", raw.get("id", step))) if is_place and isinstance(raw, dict) else str(step))
    return names


MODELS: Final = (Plan, Sweep, Hypothesis, Expectation, Load, Quick, QuickProfile, Cell)
KEYS: Final = sorted({field.alias or name for one in MODELS for name, field in one.model_fields.items()})


# --- the grid ---

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
    """The plan of a session: its cells, rounds and conditions."""

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
        raise InvalidInput(f"{loaded.file}: {error}") from error
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
    each = ([one if isinstance(one, dict) else {name: one} for one in axis] for name, axis in axes.items())
    for values in product(*each):
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
            longest, sweeps=tuple(dict.fromkeys((*known.sweeps, *one.sweeps))), arms=max(known.arms, one.arms, key=len)
        )
    return list(found.values())


# --- the order of the runs ---

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

"""The runs of a file by cell, the input of every analysis, with the rules for void and saturated cells.

The noise floor: how much two measurements of the same code differ. Smaller differences are ignored. Each cell of the
A/A row runs twice per round, as arms A and B. The floor of a cell is the largest deviation from 1 of any end of the
intervals of the A/A cells with its slow step; where there is none, of all A/A cells. These intervals are 95 % together.

The cost: the CPU time that the servers need for a million sold orders, and its price. Redis: `work.server_us`, in
microseconds an order, is the same number in seconds a million orders. The database: cores used in the window, divided
by the rate. A generator, Celery's broker and its workers are not servers here.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final, Literal

from bench.analysis.intervals import Estimate, paired_ratio, rate_of
from segmented.errors import InvalidInput
from segmented.models.ids import counted, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.engine.cell import Cell
    from bench.engine.record import ResultFile, Run

Arm = Literal["A", "B"]
SATURATED_SHARE: Final = 0.5
"""Minimum share of a cell's runs that must be saturated for the cell to be saturated."""
ORDER: Final = (
    *("loop", "strategy", "section", "hold_ms", "rtt_ms", "batch", "buyers", "segments", "arrivals", "offered_per_s"),
    *("quantity", "stock", "case", "skus", "zipf"),
)
"""Fields of a cell by which tables are sorted, in their order; numbers by value, not as text."""
WITHOUT_SHARE: Final = 0.5
"""Share of a cell's runs without a throughput from which on the cell is not judged."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All runs of one cell and arm, in the order of their rounds."""

    cell: Cell
    arm: Arm
    runs: tuple[Run, ...]

    @property
    def cell_id(self) -> str:
        """The id of the cell; both arms have the same."""
        return self.cell.cell_id

    @property
    def by_round(self) -> dict[int, float]:
        """Return orders per second by round, without void runs."""
        return {run.round: run.orders_per_s for run in self.runs if run.orders_per_s is not None}

    @property
    def rates(self) -> tuple[float, ...]:
        """Return orders per second of every run that is not void."""
        return tuple(self.by_round.values())

    @property
    def mean_rate(self) -> float | None:
        """Return the geometric mean of the rates, or None if every run is void."""
        return rate_of(self.rates).value if self.rates else None

    @property
    def void(self) -> tuple[str, ...]:
        """Return why the cell is not judged: a run broke a promise, or half of the runs have no throughput.

        A run that was lost, or too short to be measured, leaves the other rounds as they are.
        """
        without = [run for run in self.runs if run.orders_per_s is None]
        if len(without) < WITHOUT_SHARE * len(self.runs):
            without = [run for run in without if run.is_control or broken_promises(run)]
        return tuple(dict.fromkeys(sentence for run in without for sentence in run.void))

    @property
    def first(self) -> Run:
        """Return the first run that has a record, for what all runs of a cell share."""
        return next((run for run in self.runs if run.window_s > 0), self.runs[0])

    @property
    def saturated(self) -> tuple[str, ...]:
        """Return what was saturated in at least half of the runs: the figure is its limit, and is drawn hollow."""
        needed = SATURATED_SHARE * len(self.runs)
        parts = dict.fromkeys(part for run in self.runs for part in run.saturated)
        return tuple(part for part in parts if sum(part in run.saturated for run in self.runs) >= needed)

    @property
    def lanes(self) -> int:
        """How many calls can be in the critical section at once."""
        return self.first.lanes


def cells_of(results: ResultFile, *, arm: Arm = "A") -> dict[str, Measured]:
    """Return every cell of an arm by id, sorted by strategy, section, hold and so on."""
    found: dict[str, list[Run]] = {}
    for run in results.runs:
        if run.arm == arm:
            found.setdefault(run.cell_id, []).append(run)
    return {
        cell_id: Measured(runs[0].cell, arm, tuple(sorted(runs, key=lambda one: (one.round, one.run))))
        for cell_id, runs in sorted(found.items(), key=lambda item: _place(item[1][0].cell))
    }


def _place(cell: Cell) -> list[str | float]:
    return [getattr(cell, name) or ("" if name == "case" else 0) for name in ORDER]


def broken_promises(run: Run) -> tuple[str, ...]:
    """Return the strategy's guarantees that the checker found broken, whatever else may have voided the run.

    A control has no guarantees, and a strategy whose "sold out" is not exact may refuse wrongly.
    """
    found, promised = run.checker, run.guarantees
    counts = {
        "oversold": found.oversold and promised.get("never_oversells", True),
        "refused wrongly": found.refused_wrongly and promised.get("sold_out_is_exact", True),
        "stranded": found.stranded and promised.get("sold_out_is_exact", True),
        "duplicates": found.duplicates and promised.get("one_effect_per_order", True),
        "lost": found.lost,
        "the order database says otherwise": found.sold_in_sql is not None and found.sold_in_sql != found.sold,
        "the audit is not clean": found.audit not in {"clean", "none"},
    }
    return () if run.is_control else tuple(name for name, count in counts.items() if count)


@dataclass(frozen=True, slots=True)
class SameTwice:
    """A cell that ran as A and B: the ratio B / A over rounds, with its interval."""

    cell_id: str
    ratio: Estimate


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """The result of the A/A row. A floor is a share: 0.02 is two per cent."""

    rows: tuple[SameTwice, ...]
    by_step: Mapping[str, float]
    """The floor by slow step, as a cell's id names it."""
    why_none: str | None
    """Why there is no floor."""

    @property
    def floor(self) -> float | None:
        """Return the largest one."""
        return max(self.by_step.values(), default=None)

    def of(self, cell: Cell) -> float | None:
        """Return the floor of a cell."""
        return self.by_step.get(str(cell.critical_section()), self.floor)


def noise_floor(results: ResultFile) -> NoiseFloor:
    """Return the floor of a session, or why it has none."""
    first, second = cells_of(results, arm="A"), cells_of(results, arm="B")
    both, rows = second.keys() & first.keys(), []
    for cell_id, again in second.items():
        once = first.get(cell_id)
        ratio = None if once is None else paired_ratio(again.by_round, once.by_round, family=len(both))
        if ratio is not None:
            rows.append(SameTwice(cell_id, ratio))
    if not rows:
        why = "no cell ran twice a round without being void, so the noise is not known"
        return NoiseFloor((), {}, why)
    found: dict[str, float] = {}
    for row in rows:
        if (deviation := row.ratio.deviation) is not None:
            step = str(first[row.cell_id].cell.critical_section())
            found[step] = max(deviation, found.get(step, 0.0))
    if not found:
        most = max(row.ratio.n for row in rows)
        rounds, give = counted(most, "round"), plural(most, "gives")
        return NoiseFloor(tuple(rows), {}, f"{rounds} of the A/A row {give} no interval, so the noise is not known")
    return NoiseFloor(tuple(rows), found, None)


# --- the cost of an order ---

MILLION: Final = 1_000_000
SECONDS_AN_HOUR: Final = 3_600


def without_redis(run: Run) -> bool:
    """Return whether only the database sells, so that Redis counts say nothing about orders."""
    return run.cell.strategy.startswith("pg-")


def server_seconds(run: Run) -> float | None:
    """Return the CPU seconds of Redis and the database for a million sold orders; None if they are not known.

    A void run has none. If the plan fixes the stock, the database's cores include refusals, so they tell nothing.
    """
    if run.orders_per_s is None or (run.cpu.database is not None and run.cell.stock is not None):
        return None
    redis = 0.0 if without_redis(run) else run.work.server_us
    return redis + (run.cpu.database or 0.0) / run.orders_per_s * MILLION


def mean_server_seconds(runs: Iterable[Run]) -> float | None:
    """Return the mean over the runs that have it; None if none has."""
    found = [seconds for run in runs if (seconds := server_seconds(run)) is not None]
    return fmean(found) if found else None


def price(seconds: float, core_hour: float) -> float:
    """Return the price of CPU seconds, in the currency of the price of a core-hour."""
    return seconds / SECONDS_AN_HOUR * core_hour


def check_price(core_hour: float) -> None:
    """Raise InvalidInput for a price that is not above 0 and finite."""
    if not 0 < core_hour < float("inf"):
        raise InvalidInput(f"--core-hour {core_hour:g}: the price of a core-hour is a number above 0, such as 0.04")

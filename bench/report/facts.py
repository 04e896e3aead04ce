"""The input of figures and tables: the runs of each cell, and families of cells that differ in one field.

A figure is drawn, with its caption, or it is said why not. An interval has a low and a high end, or there is none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from bench.analysis.intervals import mean_of, number, rate_of
from bench.analysis.measured import Measured, cells_of
from bench.engine.percentiles import added, merged
from bench.report.style import looks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from hdrh.histogram import HdrHistogram
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from bench.analysis.intervals import Estimate
    from bench.engine.cell import Arrivals, Cell, Loop
    from bench.engine.record import Percentiles, ResultFile, Run
    from bench.report.style import Look

    Ends = tuple[float, float]

OURS: Final = "segment-locks"
ONE_LOCK: Final = "global-lock"
LOCK_FREE: Final = "lock-free"
WITHOUT_LOCK: Final = ("lock-free", "one-script")
"""Strategies that hold no lock during the slow step."""
STEPS: Final = 200
"""Maximum number of points of a curve: more cannot be seen."""
WHOLE_MIN: Final = 0.5
"""Minimum share of a cell's runs that must be valid for the cell to have a rate."""
Which = Literal["service", "response", "wait", "hold", "lateness"]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure, drawn. `name` is the file's, without its ending."""

    number: str
    name: str
    title: str
    caption: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class NotDrawn:
    """A figure whose data the session does not have."""

    number: str
    name: str
    title: str
    why: str


Outcome = Drawn | NotDrawn


def ends(found: Estimate | None) -> Ends | None:
    """Return the two ends of an estimate, where it has them."""
    return None if found is None or found.low is None or found.high is None else (found.low, found.high)


def with_ends(value: float, found: Ends | None) -> str:
    """Return a value and its interval as text: `812 [804, 820]`."""
    return number(value) + ("" if found is None else f" [{number(found[0])}, {number(found[1])}]")


@dataclass(frozen=True)
class Spot(Measured):
    """The runs of one cell, with what a figure draws of them."""

    @cached_property
    def whole(self) -> tuple[Run, ...]:
        """Runs that kept every guarantee."""
        return tuple(run for run in self.runs if run.orders_per_s is not None)

    @property
    def is_void(self) -> bool:
        """Return whether the cell has no rate, because too many of its runs broke a guarantee."""
        return len(self.whole) <= WHOLE_MIN * len(self.runs)

    @property
    def has_void(self) -> bool:
        """Return whether any of its runs broke a guarantee."""
        return len(self.whole) < len(self.runs)

    @property
    def runs_said(self) -> str:
        """How many of its runs count, as text: '10', or '9 + 1 void'."""
        voided = len(self.runs) - len(self.whole)
        return f"{len(self.whole)}" + (f" + {voided} void" if voided else "")

    def named(self, value: str) -> str:
        """Return what a reader sees who points at the cell in a figure: its name, a value, and the number of runs."""
        return f"{self.cell.cell_id}: {value}, runs: {self.runs_said}"

    @cached_property
    def mean(self) -> float:
        """Orders per second: the geometric mean over runs; 0 if none is valid."""
        return self.mean_rate or 0.0

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % interval; None below three runs."""
        return ends(rate_of(self.rates)) if self.rates else None

    def mean_of(self, get: Callable[[Run], float]) -> float:
        """Return the mean over the valid runs."""
        return fmean(get(run) for run in self.whole or self.runs)

    def interval_of(self, get: Callable[[Run], float]) -> tuple[float, float] | None:
        """Return the 95 % interval of that mean."""
        return ends(mean_of([get(run) for run in self.whole or self.runs]))

    def percentiles(self, which: Which) -> Percentiles | None:
        """Return the merged percentiles of all runs; None if nothing was recorded."""
        encoded = self._encoded(which)
        return _merged(encoded) if encoded else None

    def histogram(self, which: Which) -> HdrHistogram | None:
        """Return the merged histograms of all runs, in microseconds."""
        encoded = self._encoded(which)
        return added(encoded) if encoded else None

    def _encoded(self, which: Which) -> tuple[str, ...]:
        # a run that is void for a late generator has the longest waits: without it the tail would be too short
        noted = [
            getattr(run.times, which) for run in (self.runs if self.cell.loop == "open" else self.whole or self.runs)
        ]
        return tuple(one.encoded for one in noted if one is not None and one.n)


@lru_cache(maxsize=4_096)
def _merged(encoded: tuple[str, ...]) -> Percentiles:
    return merged(encoded)


class Facts:
    """A session's cells."""

    def __init__(self, results: ResultFile, *, core_hour: float | None = None) -> None:
        """Group runs by cell; arm B, the same code again, is separate for the noise floor.

        `core_hour` is the price of an hour of a core.
        """
        self.results = results
        self.core_hour = core_hour
        self.measured = tuple(cells_of(results).values())
        self.spots = tuple(Spot(one.cell, one.arm, one.runs) for one in self.measured)
        self.looks: dict[str, Look] = looks([spot.cell.strategy for spot in self.spots])

    @property
    def usual(self) -> list[Spot]:
        """Cells of the grid, without those of unfavourable cases and those with their own small stock."""
        return [spot for spot in self.spots if not is_perverse(spot) and spot.cell.stock is None]

    def select(
        self, *, loop: Loop, strategy: str | None = None, arrivals: Arrivals | None = None, batch: int | None = None
    ) -> list[Spot]:
        """Return the usual cells with these values; None stands for any."""
        wanted = {"loop": loop, "strategy": strategy, "arrivals": arrivals, "batch": batch}
        asked = {name: value for name, value in wanted.items() if value is not None}
        return [spot for spot in self.usual if all(getattr(spot.cell, name) == one for name, one in asked.items())]


@dataclass(frozen=True, slots=True)
class Family:
    """Cells that differ in their strategy and in one other field, the axis."""

    axes: tuple[str, ...]
    spots: tuple[Spot, ...]

    @property
    def cell(self) -> Cell:
        """Any of the cells, for the fields that they share."""
        return self.spots[0].cell

    @property
    def values(self) -> list[Any]:
        """The values of the axis, in order."""
        return sorted({getattr(spot.cell, self.axes[0]) for spot in self.spots})

    def by_strategy(self) -> dict[str, list[Spot]]:
        """Return the cells of each strategy, in the order of the axis."""
        found: dict[str, list[Spot]] = defaultdict(list)
        for spot in sorted(self.spots, key=lambda spot: getattr(spot.cell, self.axes[0])):
            found[spot.cell.strategy].append(spot)
        return dict(sorted(found.items()))

    def of(self, strategy: str) -> list[Spot]:
        """Return the cells of one strategy, in the order of the axis."""
        return self.by_strategy().get(strategy, [])


def families(spots: Iterable[Spot], *axes: str, least: int = 3) -> list[Family]:
    """Group cells that differ only in the strategy and `axes`; the largest group first.

    A family counts if one of its strategies has `least` values of the first axis.
    """
    groups: dict[str, list[Spot]] = defaultdict(list)
    for spot in spots:
        groups[shared(spot.cell, axes)].append(spot)
    found = [Family(axes, tuple(group)) for _, group in sorted(groups.items())]
    kept = [one for one in found if _span(one) >= least]
    return sorted(kept, key=lambda one: -len(one.spots))


def segment_families(facts: Facts) -> list[Family]:
    """Return the closed sweeps over K, the largest first."""
    return families(facts.select(loop="closed"), "segments")


def shared(cell: Cell, axes: Collection[str]) -> str:
    """Return a key of all fields but the strategy and `axes`."""
    return cell.model_dump_json(exclude={"strategy", *axes})


def _span(family: Family) -> int:
    return max(len({getattr(spot.cell, family.axes[0]) for spot in spots}) for spots in family.by_strategy().values())


def is_perverse(spot: Spot) -> bool:
    """Return whether the cell is only an unfavourable case."""
    cell = spot.cell
    sweeps = {sweep for run in spot.runs for sweep in run.sweeps}
    is_named = bool(sweeps) and all("unfavourable" in sweep or "perverse" in sweep for sweep in sweeps)
    return is_named or cell.case is not None or cell.quantity > 1


def said(cell: Cell, *, without: Collection[str] = ()) -> str:
    """Describe a cell without these fields: 'hold 20 ms, 64 buyers'."""
    buyers = "1 buyer" if cell.buyers == 1 else f"{cell.buyers} buyers"
    if cell.loop == "open":
        buyers = f"{cell.buyers} at once at most"
    parts = {
        "segments": f"K={cell.segments}",
        "hold_ms": section(cell),
        "rtt_ms": f"round trips + {cell.rtt_ms:g} ms" if cell.rtt_ms else "through the proxy" * cell.proxied,
        "buyers": buyers,
        "batch": f"batches of {cell.batch}" if cell.batch > 1 else "",
        "offered_per_s": f"{cell.offered_per_s:,g}/s offered" if cell.offered_per_s else "",
        "quantity": f"{cell.quantity} units an order" if cell.quantity > 1 else "",
        "stock": f"stock {cell.stock:,}" if cell.stock else "",
        "case": cell.case or "",
        "skus": f"{cell.skus} skus, Zipf {cell.zipf:g}" if cell.skus > 1 else "",
    }
    return ", ".join(part for name, part in parts.items() if part and name not in without)


def section(cell: Cell) -> str:
    """Describe the critical section."""
    return {
        "none": "no slow step",
        "sleep": f"hold {cell.hold_ms:g} ms",
        "lognormal": f"lognormal holds, {cell.hold_ms:g} ms on average",
        "bimodal": f"bimodal holds, {cell.hold_ms:g} ms on average",
        "cpu": f"{cell.hold_ms:g} ms of CPU",
        "commit": f"a commit + {cell.hold_ms:g} ms" if cell.hold_ms else "a commit",
    }[cell.section]


def counted(spots: Iterable[Spot]) -> str:
    """Return the number of runs per point: 'n = 10 runs' or 'n = 8-10 runs'."""
    counts = sorted({len(spot.whole) for spot in spots if not spot.is_void})
    if not counts:
        return "no run counts"
    span = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]}-{counts[-1]}"
    return f"n = {span} run{'s' if span != '1' else ''} a point"


def quantiles(found: HdrHistogram) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values in milliseconds and the share of samples up to each, from a histogram's own buckets."""
    values, shares = [], []
    seen, total = 0, int(found.get_total_count())
    for item in found.get_recorded_iterator():
        seen += int(item.count_at_value_iterated_to)
        values.append(item.value_iterated_to / 1_000)
        shares.append(seen / total)
    kept = _thinned(np.asarray(shares))
    return np.asarray(values, dtype=np.float64)[kept], np.asarray(shares, dtype=np.float64)[kept]


def _thinned(shares: NDArray[np.float64]) -> NDArray[np.intp]:
    """Keep a bucket if the share, or the rest beyond it, has changed by a hundredth; always keep the ends."""
    beyond = np.log10(np.maximum(1 - shares, 1e-9))
    steps = np.floor(shares * STEPS) + np.floor(beyond * STEPS / 4)
    kept = np.flatnonzero(np.diff(steps, prepend=np.nan, append=np.nan)[:-1] != 0)
    return np.union1d(kept, [0, len(shares) - 1]).astype(np.intp)

"""F11: where locks pay and where no lock wins: by K and hold, or by hold only if K was not swept with it.

Where segment locks pay: the first K (hold, batch, delay) at which they sell more than their rival.

COST ("configuration that outperforms a single thread": F. McSherry, M. Isard, D. Murray, "Scalability! But at what
COST?", HotOS 2015), here: the configuration that outperforms one lock-free script, or one lock. The rival is taken at
its best: the cell that sold most, of all its cells with the same buyers, orders and section.

A value wins if the interval of the ratio, paired by round, is above 1 and the ratio is above the noise floor, if the
file has one; the intervals of all values of a curve are 95 % together. With too few rounds for an interval, it wins if
the ratio itself is above 1, which is noted. A cell in which a run broke a promise never wins, and the rival's cells
with such runs are not used. Between the last value that did not win and the first that did, the point where the ratio
would be 1 is interpolated on logarithmic axes (linear if a value is 0): it is drawn, not measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from bench.analysis.intervals import number, paired_ratio
from bench.analysis.measured import cells_of, noise_floor
from bench.report.facts import ONE_LOCK, OURS, WITHOUT_LOCK, Drawn, NotDrawn, counted, families, said
from bench.report.points import LEGEND, gid, plot, void_gid
from bench.report.style import BLACK, GREY, PAPER, legend_below, log_axis, new_figure

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from numpy.typing import NDArray

    from bench.report.facts import Facts, Family, Outcome, Spot

    Numbers = NDArray[np.float64]
    Table = tuple[list[float], list[float], Numbers]
    """K, the other axis, and the ratio of our rate to the best lock-free rate."""
    from collections.abc import Iterable

    from bench.analysis.intervals import Estimate
    from bench.analysis.measured import Measured
    from bench.engine.cell import Cell
    from bench.engine.record import ResultFile

Axis = Literal["segments", "hold_ms", "batch", "rtt_ms"]
Answer = Literal["always", "never", "from", "mixed", "unknown"]
OUR_STRATEGIES: Final = ("segment-locks", "segment-batches")
RIVALS: Final = ("one-script", "lock-free", "global-lock", "global-redis-py-best")
NAMES: Final[dict[Axis, str]] = {"segments": "K", "hold_ms": "hold in ms", "batch": "B", "rtt_ms": "delay in ms"}
DEMAND: Final = attrgetter(
    "section", "hold_ms", "rtt_ms", "proxied", "buyers", "quantity", "stock", "case", "skus", "zipf"
)
"""Fields of a cell that a rival's cell must share."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of the axis."""

    value: float
    ratio: Estimate | None
    """Our rate / the rival's; None if one has no throughput."""
    is_void: bool
    """Whether one of our runs is void."""
    floor: float = 0.0
    """The noise floor as a share."""

    @property
    def wins(self) -> bool:
        """Return whether our cell sells more, beyond interval and noise."""
        if self.is_void or self.ratio is None:
            return False
        surely = self.ratio.value if self.ratio.low is None else self.ratio.low
        return surely > 1 and self.ratio.value > 1 + self.floor


@dataclass(frozen=True, slots=True)
class Crossover:
    """The answer for one strategy, one rival and one setting of all but the axis."""

    axis: Axis
    strategy: str
    against: str
    setting: str
    """The conditions that all points share, in words."""
    points: tuple[Point, ...]
    answer: Answer
    first: float | None
    """The smallest measured value that wins: the COST."""
    interpolated: float | None
    """Where the ratio would be 1, between `first` and the value before it."""

    @property
    def sentence(self) -> str:
        """Say it."""
        measured = ", ".join(f"{one.value:g}" for one in self.points)
        name, pair = NAMES[self.axis], f"{self.strategy} against {self.against} ({self.setting})"
        note = self._note()
        if self.answer == "unknown":
            return f"{pair}: no {name} can be compared."
        if self.answer == "never":
            return f"{pair}: never, at {name} = {measured}{note}."
        if self.answer == "always":
            return f"{pair}: always, at {name} = {measured}{note}."
        between = "" if self.interpolated is None else f", by interpolation from {self.interpolated:.3g}"
        if self.answer == "mixed":
            won = ", ".join(f"{one.value:g}" for one in self.points if one.wins)
            return f"{pair}: at {name} = {won} of {measured}{between}{note}."
        return f"{pair}: from {name} = {self.first:g} on{between}{note}."

    def _note(self) -> str:
        void = ", ".join(f"{one.value:g}" for one in self.points if one.is_void)
        is_sure = all(one.ratio is None or one.ratio.low is not None for one in self.points)
        unsure = "" if is_sure else "; too few rounds for intervals, so by the ratios alone"
        return (f"; void at {void}" if void else "") + unsure


def crossovers(
    results: ResultFile,
    axis: Axis,
    *,
    ours: Iterable[str] = OUR_STRATEGIES,
    rivals: Iterable[str] = RIVALS,
    points_min: int = 2,
) -> tuple[Crossover, ...]:
    """Return a crossover per strategy of ours, rival and setting with `points_min` values at which both were run."""
    cells = [one for one in cells_of(results).values() if one.cell.loop == "closed"]
    floor = noise_floor(results).floor or 0.0
    found = []
    for strategy in ours:
        groups: dict[str, list[Measured]] = {}
        for one in cells:
            if one.cell.strategy == strategy:
                groups.setdefault(setting_of(one.cell, axis), []).append(one)
        for setting, group in groups.items():
            for rival in rivals:
                others = [one for one in cells if one.cell.strategy == rival and not one.void]
                # A value at which the rival was not run says nothing about it.
                both = [one for one in group if best_rival(one.cell, others)]
                if len({getattr(one.cell, axis) for one in both}) >= points_min:
                    found.append(compare_cells(both, others, axis=axis, against=rival, setting=setting, floor=floor))
    return tuple(found)


def compare_cells(
    ours: Iterable[Measured], others: Iterable[Measured], *, axis: Axis, against: str, setting: str, floor: float = 0.0
) -> Crossover:
    """Compare cells that differ only in the axis with the best cells of a rival."""
    others = tuple(others)
    group = sorted(ours, key=lambda one: float(getattr(one.cell, axis)))
    points = tuple(_point(one, best_rival(one.cell, others), axis, floor, len(group)) for one in group)
    known = [one for one in points if one.ratio is not None or one.is_void]
    wins = [one.wins for one in known]
    first = next((one.value for one in known if one.wins), None)
    answer: Answer = "mixed"
    if not any(one.ratio is not None for one in points):
        answer = "unknown"
    elif not any(wins):
        answer = "never"
    elif all(wins):
        answer = "always"
    elif wins == sorted(wins):
        answer = "from"
    place = wins.index(True) if True in wins else 0
    interpolated = _interpolated(known[place - 1], known[place]) if place else None
    return Crossover(axis, group[0].cell.strategy, against, setting, points, answer, first, interpolated)


def best_rival(cell: Cell, others: Iterable[Measured]) -> Measured | None:
    """Return the rival's cell that sold most, with the same buyers, orders and section, for any K and B."""
    alike = [one for one in others if DEMAND(one.cell) == DEMAND(cell)]
    return max(alike, key=lambda one: one.mean_rate or 0.0, default=None)


def setting_of(cell: Cell, axis: Axis) -> str:
    """Describe a cell without the strategy and the axis. A hold of 0 ms is the section `none`."""
    parts: dict[str, str] = {
        "segments": f"K={cell.segments}",
        "buyers": f"N={cell.buyers}",
        "batch": f"B={cell.batch}",
        "hold_ms": str(cell.critical_section()),
        "rtt_ms": f"rtt={cell.rtt_ms:g}ms",
    }
    is_direct = not (cell.rtt_ms or cell.proxied)
    if axis == "hold_ms":
        parts["hold_ms"] = "sleep" if cell.section == "none" else cell.section
    else:
        del parts[axis]
    if axis == "rtt_ms" and is_direct:
        parts["rtt_ms"] = "without the proxy"
    elif axis != "rtt_ms" and cell.proxied and not cell.rtt_ms:
        parts["rtt_ms"] = "through the proxy"
    more = [f"q={cell.quantity}"] if cell.quantity != 1 else []
    more += [f"stock={cell.stock}"] if cell.stock is not None else []
    more += [cell.case] if cell.case is not None else []
    more += [f"skus={cell.skus} zipf={cell.zipf:g}"] if cell.skus > 1 else []
    return " ".join([*parts.values(), *more])


def _point(ours: Measured, rival: Measured | None, axis: Axis, floor: float, family: int) -> Point:
    return Point(
        value=float(getattr(ours.cell, axis)),
        ratio=None if rival is None else paired_ratio(ours.by_round, rival.by_round, family=family),
        is_void=bool(ours.void),
        floor=floor,
    )


def _interpolated(before: Point, after: Point) -> float | None:
    """Return where the ratio is 1 between two points, or None if it is not between them."""
    if before.ratio is None or after.ratio is None or before.is_void:
        return None
    low, high = math.log(before.ratio.value), math.log(after.ratio.value)
    if not low <= 0 < high:
        return None
    share = -low / (high - low)
    if before.value > 0:
        return before.value * math.exp(share * math.log(after.value / before.value))
    return before.value + share * (after.value - before.value)


# --- the figure ---

NAME: Final = "f11-crossover"
TITLE: Final = "Segment locks against no lock"
VOID: Final = np.inf
REACH: Final = 5.0
"""Range of the colours in powers of two, in both directions."""
SIDES: Final[tuple[tuple[Axis, str, str], ...]] = (
    ("hold_ms", "section", "hold, ms (not to scale)"),
    ("rtt_ms", "rtt_ms", "added to a round trip, ms (not to scale)"),
)
SHOWN: Final = (OURS, ONE_LOCK, *WITHOUT_LOCK)
HATCH: Final = "////"
OPACITY: Final = 0.4
"""A field's colour is this opaque, so that its hatching is seen on light paper and on dark."""
SIDE_MIN: Final = 2
FULL_MIN: Final = 0.75
"""Minimum share of measured fields for a grid to be shown."""
BREAK_EVEN: Final = "break-even"


def crossover(facts: Facts) -> Outcome:
    """F11: grids of K and hold, and of K and round trip, if both were swept; otherwise lines over one of them."""
    closed = [spot for spot in facts.select(loop="closed", batch=1) if spot.cell.section in {"none", "sleep"}]
    closed = [spot for spot in closed if spot.cell.strategy in SHOWN]
    panels: list[tuple[Axis, str, Family, Table | None]] = []
    for axis, extra, label in SIDES:
        found = families(closed, axis, extra, "segments", least=2)
        told = [(family, table_of(family, axis)) for family in found if _has_both(family, axis)]
        told.sort(key=lambda one: one[1] is None)
        if told:
            panels.append((axis, label, *told[0]))
    if not panels:
        why = f"no two holds or round trips at which both {OURS} and one of {', '.join(WITHOUT_LOCK)} were run"
        return NotDrawn("F11", NAME, TITLE, why)
    figure = new_figure(f"F11  {TITLE} (closed loop)", height=4.1)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    meshes = []
    for axes, (axis, label, family, table) in zip(grid, panels, strict=True):
        axes.set_title(said(family.cell, without=("segments", axis)))
        if table is None:
            _lines(facts, axes, family, axis, label)
        else:
            meshes.append(_fields(axes, family, axis, table))
            axes.set_ylabel(label)
    if meshes:
        bar = figure.colorbar(meshes[0], ax=list(grid), label="times the rate without a lock, log scale")
        bar.set_ticks([-REACH, -2, 0, 2, REACH], labels=["1/32", "1/4", "1", "4", "32"])
    hatched = Rectangle((0, 0), 1, 1, facecolor=PAPER, edgecolor=BLACK, hatch=HATCH, linewidth=0.5)
    first: dict[str, Artist] = {"without a lock more is sold": hatched}
    if any(line.get_gid() == BREAK_EVEN for axes in grid for line in axes.get_lines()):
        first[BREAK_EVEN] = Line2D([], [], color=BLACK, linewidth=2.4)
    legend_below(figure, grid, first=first, ncols=4)
    return Drawn("F11", NAME, TITLE, _caption(facts, panels), figure)


def _caption(facts: Facts, panels: list[tuple[Axis, str, Family, Table | None]]) -> str:
    spots = [spot for _, _, family, _ in panels for spot in family.spots]
    answers = [one.sentence for axis, _, _, _ in panels for one in crossovers(facts.results, axis, rivals=WITHOUT_LOCK)]
    fields = "Each field: orders/s of ours with K segments by the best rate without a lock; empty fields were not run. "
    return (
        f"Closed loop. {counted(spots)}. {fields if any(one[3] for one in panels) else ''}Hatched: without a lock more "
        f"is sold. Where {OURS} sells more: {' '.join(answers) or 'nothing can be compared.'} A strategy without a "
        "lock does the slow step outside of any, or has none, and so promises less about it: see the guarantees. "
        f"{LEGEND}"
    )


def _has_both(family: Family, axis: str) -> bool:
    """Return whether ours and a lock-free strategy were run at two or more values of the axis."""
    ours = {getattr(spot.cell, axis) for spot in family.of(OURS)}
    return len(ours & {getattr(spot.cell, axis) for name in WITHOUT_LOCK for spot in family.of(name)}) >= SIDE_MIN


def best_without_lock(family: Family, axis: str) -> dict[float, float]:
    """Return the best lock-free rate at each value of the axis."""
    found: dict[float, float] = {}
    for spot in (spot for name in WITHOUT_LOCK for spot in family.of(name) if not spot.is_void):
        at = float(getattr(spot.cell, axis))
        found[at] = max(found.get(at, 0.0), spot.mean)
    return found


def table_of(family: Family, axis: str) -> Table | None:
    """Return the ratios, NaN for a cell that was not run, infinite for a void one; None if they form no grid."""
    ours, best = family.of(OURS), best_without_lock(family, axis)
    rows = sorted({float(getattr(spot.cell, axis)) for spot in ours} & set(best))
    known = [spot for spot in ours if float(getattr(spot.cell, axis)) in rows]
    columns = sorted({float(spot.cell.segments) for spot in known})
    if min(len(rows), len(columns)) < SIDE_MIN or len(known) < FULL_MIN * len(rows) * len(columns):
        return None
    found = np.full((len(rows), len(columns)), np.nan)
    for spot in known:
        at = float(getattr(spot.cell, axis))
        found[rows.index(at), columns.index(float(spot.cell.segments))] = VOID if spot.is_void else spot.mean / best[at]
    return columns, rows, found


def _fields(axes: Axes, family: Family, axis: str, table: Table) -> QuadMesh:
    columns, rows, ratios = table
    spots = {(float(getattr(spot.cell, axis)), float(spot.cell.segments)): spot for spot in family.of(OURS)}
    powers = np.clip(np.log2(np.where(np.isfinite(ratios), ratios, np.nan)), -REACH, REACH)
    norm = TwoSlopeNorm(0, -REACH, REACH)
    mesh = axes.pcolormesh(powers, cmap="PuOr_r", norm=norm, alpha=OPACITY, edgecolors=PAPER, linewidth=0.8)
    for (row, column), ratio in np.ndenumerate(ratios):
        if np.isnan(ratio):
            continue
        is_known = bool(np.isfinite(ratio))
        if is_known and ratio < 1:
            axes.add_patch(Rectangle((column, row), 1, 1, fill=False, hatch=HATCH, linewidth=0, edgecolor=BLACK))
        said_ratio = f"{ratio:.2g}" if is_known else "x"
        text = axes.text(column + 0.5, row + 0.5, said_ratio, ha="center", va="center", fontsize=8)
        text.set_bbox({"facecolor": PAPER, "alpha": 0.85, "edgecolor": "none", "pad": 1.2})
        spot = spots[rows[row], columns[column]]
        value = f"{number(ratio)} times the best rate without a lock"
        text.set_gid(gid(spot, value) if is_known else void_gid(spot))
    _break_even(axes, ratios)
    axes.set_xticks(np.arange(len(columns)) + 0.5, [f"{one:g}" for one in columns])
    axes.set_yticks(np.arange(len(rows)) + 0.5, [f"{one:g}" for one in rows])
    axes.set_xlabel("segments K (not to scale)")
    axes.grid(visible=False)
    return mesh


def _break_even(axes: Axes, ratios: Numbers) -> None:
    """Draw the border between fields on either side of 1; nothing is interpolated."""
    for (row, column), ratio in np.ndenumerate(ratios):
        beside = ((row, column + 1), ((column + 1, column + 1), (row, row + 1)))
        above = ((row + 1, column), ((column, column + 1), (row + 1, row + 1)))
        for other, border in (beside, above):
            if other[0] >= ratios.shape[0] or other[1] >= ratios.shape[1]:
                continue
            if np.isfinite(ratio) and np.isfinite(ratios[other]) and (ratio < 1) != (ratios[other] < 1):
                (line,) = axes.plot(*border, color=BLACK, linewidth=2.4, solid_capstyle="round")
                line.set_gid(BREAK_EVEN)


def _lines(facts: Facts, axes: Axes, family: Family, axis: str, label: str) -> None:
    """Draw the rate of each strategy at the K that has the most values of the axis."""
    values = [float(one) for one in family.values]
    best = best_without_lock(family, axis)
    for strategy in SHOWN:
        by_k: dict[int, list[Spot]] = {}
        for spot in family.of(strategy):
            by_k.setdefault(spot.cell.segments, []).append(spot)
        spots = max(by_k.values(), key=lambda group: (len(group), group[0].cell.segments), default=[])
        if not spots:
            continue
        name = f"{strategy}, K={spots[0].cell.segments}"
        plot(
            axes, spots, facts.looks[strategy], x=lambda spot: values.index(float(getattr(spot.cell, axis))), label=name
        )
        for spot in spots if strategy == OURS else ():
            at = float(getattr(spot.cell, axis))
            if not spot.is_void and best.get(at, 0.0) > spot.mean:
                place = values.index(at)
                band = axes.axvspan(
                    place - 0.42, place + 0.42, facecolor="none", edgecolor=GREY, hatch=HATCH, lw=0, zorder=0
                )
                band.set_gid("without a lock")
    axes.set_xticks(range(len(values)), [f"{one:g}" for one in values])
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xlabel(label)
    log_axis(axes, "y", "orders/s")

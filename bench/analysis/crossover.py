"""Where segment locks pay: the first K (hold, batch, delay) at which they sell more than their rival.

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

from bench.analysis.intervals import paired_ratio
from bench.analysis.measured import cells_of, noise_floor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.analysis.intervals import Estimate
    from bench.analysis.measured import Measured
    from bench.engine.cell import Cell
    from bench.engine.record import ResultFile

Axis = Literal["segments", "hold_ms", "batch", "rtt_ms"]
Answer = Literal["always", "never", "from", "mixed", "unknown"]
OURS: Final = ("segment-locks", "segment-batches")
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
    ours: Iterable[str] = OURS,
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
                    found.append(crossover(both, others, axis=axis, against=rival, setting=setting, floor=floor))
    return tuple(found)


def crossover(
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

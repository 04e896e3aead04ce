"""F1, F3, F4 and F5: rates by segments and by buyers, and latency by offered load.

F1: the effect of more segments, with the ideal, the model, and lock-free strategies. F3: rates by number of buyers,
beside the closed network and their distance from it. F4: latency by offered load, up to and beyond the capacity. F5:
its percentiles at the highest load. The models are those of `bench.analysis`, as lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.analysis.intervals import number
from bench.analysis.model_error import MODELS, Calibration, calibrate, ceiling_of, ideal_hold, predict
from bench.engine.percentiles import BEYOND_MIN, CAP_MS
from bench.report.facts import (
    ONE_LOCK,
    OURS,
    WITHOUT_LOCK,
    Drawn,
    Family,
    NotDrawn,
    counted,
    families,
    quantiles,
    said,
    segment_families,
    shared,
)
from bench.report.points import LEGEND, crosses, model_line, plot, point
from bench.report.style import BLACK, BLUE, GREEN, LIGHT, RED, from_zero, legend_below, log_axis, new_figure, ramp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from bench.analysis.model_error import Model
    from bench.report.facts import Facts, Family, Outcome, Spot, Which
    from bench.report.style import Dashes, Look

SEGMENT_PANELS_MAX: Final = 4
IDEAL_ROOM: Final = 1.3
"""Upper limit of y as a multiple of the highest point."""
ACROSS: Final = (ONE_LOCK, *WITHOUT_LOCK)
"""Strategies drawn across all K, for comparison with segments."""
TITLE_1: Final = "Orders a second by number of segments"


def throughput(facts: Facts) -> Outcome:
    """F1: points, the ideal, models, and lines of lock-free strategies."""
    found = segment_families(facts)[:SEGMENT_PANELS_MAX]
    if not found:
        return NotDrawn("F1", "f01-throughput", TITLE_1, "no closed sweep over three numbers of segments")
    rows = (len(found) + 1) // 2
    is_one = len(found) == 1
    figure = new_figure(f"F1  {TITLE_1} (closed loop)", height=4.3 if is_one else 1.0 + 2.9 * rows)
    grid = figure.subplots(rows, 1 if is_one else 2, squeeze=False)
    sources = [_segment_panel(facts, axes, family) for axes, family in zip(grid.flat, found, strict=False)]
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    legend_below(figure, grid.flat, ncols=3)
    spots = [spot for family in found for spot in family.spots]
    left_out = len(segment_families(facts)) - len(found)
    caption = (
        "Orders per second that hold stock, answered within the window; refusals are not counted. Closed loop: each "
        f"buyer orders again at once. {counted(spots)}. Dotted: the ideal, min(K, N)/hold, with a hand-over that "
        "takes no time. Dashed and dash-dotted: the closed network of N buyers, for the lane of each strategy, with S, "
        f"the hold and the hand-over measured in cells of one lane. {'; '.join(sources)}. No throughput is used, and "
        "the model's error is given below. An ideal far above the points is cut off. Thin lines across: what needs "
        f"no segments. Strategies measured at a single K are in figure S. y begins at 0. {LEGEND}"
        + (f" {left_out} smaller sweeps are in the table only." if left_out else "")
    )
    return Drawn("F1", "f01-throughput", TITLE_1, caption, figure)


def _segment_panel(facts: Facts, axes: Axes, family: Family) -> str:
    ticks = family.values
    log_axis(axes, "x", "segments K", base=2, ticks=ticks)
    for strategy, spots in family.by_strategy().items():
        if len(spots) == 1 and strategy not in ACROSS:
            continue
        look = facts.looks[strategy]
        plot(axes, spots, look, x=lambda spot: spot.cell.segments, label=strategy)
        if strategy in ACROSS and len(spots) == 1 and not spots[0].is_void:
            across = axes.axhline(spots[0].mean, color=look.colour, linestyle=look.line, linewidth=0.8, zorder=1.2)
            across.set_gid(f"across:{strategy}")
    lines, source = lines_over_segments(facts, family)
    top = max((spot.mean for spot in family.spots if not spot.is_void), default=1.0)
    for line in lines:
        model_line(axes, line.segments, line.per_s, line.label, style=line.style)
    where = said(family.cell, without=("segments",))
    axes.set_title(where)
    from_zero(axes, "orders/s")
    axes.set_ylim(0, IDEAL_ROOM * top)
    return f"{where}: {source}"


STYLES: Final[dict[Model, str]] = {"any free lane": "--", "random lane": "-."}
"""The models that depend on K."""
IDEAL: Final = "ideal min(K, N)/hold"
MODEL_STEPS: Final = 40


@dataclass(frozen=True, slots=True)
class Line:
    """The prediction of a model at each K."""

    label: str
    style: str
    segments: list[float]
    per_s: list[float]


def lines_over_segments(facts: Facts, family: Family) -> tuple[list[Line], str]:
    """Return the ceiling and the models of a sweep over K, and the times that each was computed with.

    Strategies with the same model share a line, with the S of the first.
    """
    cell = family.cell
    where = sorted({int(one) for one in np.geomspace(family.values[0], family.values[-1], MODEL_STEPS)})
    found: dict[str, Line] = {}
    said: list[str] = []
    why_none = "no model: no cell of one lane tells S"
    for strategy in family.by_strategy():
        model = MODELS.get(strategy)
        if model not in STYLES or model in found or len(family.of(strategy)) == 1:
            continue
        own = cell.model_copy(update={"strategy": strategy})
        calibration = calibrate(own, facts.measured)
        if not isinstance(calibration, Calibration):
            why_none = calibration
            continue
        if not found:
            ideal = [ceiling_of(own, calibration, lanes=lanes) for lanes in where]
            found[IDEAL] = Line(IDEAL, ":", [*map(float, where)], ideal)
            kind = "configured" if own.section == "sleep" else "measured"
            said.append(f"hold = {ideal_hold(own, calibration):.3g} ms ({kind})")
        rates = [predict(own, calibration, lanes=lanes, model=model) for lanes in where]
        found[model] = Line(f"model: {model}", STYLES[model], [*map(float, where)], rates)
        said.append(f"S = {calibration.service:.3g} ms ({model})")
    return list(found.values()), ", ".join(said) or why_none


def by_buyers(facts: Facts, spots: Sequence[Spot]) -> tuple[list[float], list[float]] | None:
    """Return the closed-network prediction for these cells by number of buyers; None without a model or S and Z."""
    cell = spots[0].cell
    model, calibration = MODELS.get(cell.strategy), calibrate(cell, facts.measured)
    if model is None or not isinstance(calibration, Calibration):
        return None
    numbers = [spot.cell.buyers for spot in spots]
    where = sorted({*numbers, *(int(one) for one in np.geomspace(min(numbers), max(numbers), MODEL_STEPS))})
    cells = [cell.model_copy(update={"buyers": one}) for one in where]
    return [*map(float, where)], [predict(one, calibration, lanes=one.segments, model=model) for one in cells]


BUYERS_TITLE: Final = "Orders a second by number of buyers"
BUYERS_NAME: Final = "f03-buyers"
MODEL: Final = "model: the closed network"
LINES_MAX: Final = 6
LOAD_NAME: Final = "f04-latency-by-load"
LOAD_TITLE: Final = "Latency by offered load"
PANELS_MAX: Final = 4
SHED: Final = 0.001
"""Share of shed arrivals above which they are marked."""
SERIES: Final[tuple[tuple[str, str, str, Dashes], ...]] = (
    ("p50", BLUE, "o", "-"),
    ("p99", RED, "s", (0, (5, 1.5))),
    ("p999", GREEN, "^", (0, (3, 1, 1, 1))),
)
SPECTRUM_TITLE: Final = "Percentiles of the latency, served and from the intended time"
SHARES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999)
CURVES: Final[tuple[tuple[Which, str, Dashes], ...]] = (("response", RED, "-"), ("service", BLUE, (0, (5, 1.5))))
OPEN_ONLY: Final = ("loop", "offered_per_s", "arrivals", "buyers")


def throughput_by_buyers(facts: Facts) -> Outcome:
    """F3: one line per K (or per strategy with only one K), the model, and how far the points are from it."""
    found = families(facts.select(loop="closed"), "buyers", "segments")
    if not found:
        return NotDrawn("F3", BUYERS_NAME, BUYERS_TITLE, "no closed sweep over three numbers of buyers")
    lines = _lines(found[0])
    figure = new_figure(f"F3  {BUYERS_TITLE} (closed loop)", height=5.2)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    ticks = sorted({spot.cell.buyers for _, spots in lines for spot in spots})
    for look, (label, spots) in zip(ramp(len(lines)), lines, strict=True):
        plot(upper, spots, look, x=_buyers, label=label)
        if (modelled := by_buyers(facts, spots)) is not None:
            is_named = any(line.get_label() == MODEL for line in upper.lines)
            model_line(upper, *modelled, "" if is_named else MODEL)
            says = dict(zip(*modelled, strict=True))
            _residuals(lower, [one for one in spots if not one.is_void], says, look)
    log_axis(lower, "x", "buyers N", base=2, ticks=ticks)
    from_zero(upper, "orders/s")
    lower.axhline(0, color=BLACK, linewidth=0.8)
    lower.set_ylabel("from the model, %")
    upper.set_title(said(found[0].cell, without=("segments", "buyers")))
    upper.legend(loc="upper left")
    caption = (
        f"Closed loop. {counted(found[0].spots)}. Dashed black: the closed network of N buyers and K lanes, its S and "
        "Z from cells of one lane and of one buyer. Lower panel: how far the points are from it. y of the upper panel "
        f"begins at 0. {LEGEND}"
    )
    return Drawn("F3", BUYERS_NAME, BUYERS_TITLE, caption, figure)


def _residuals(axes: Axes, spots: list[Spot], says: dict[float, float], look: Look) -> None:
    """Draw how far each cell is from the model, which says a rate for each N."""
    for spot in spots:
        share = spot.mean / says[_buyers(spot)] - 1
        value = f"{100 * share:+.1f} % from the closed network"
        point(axes, (_buyers(spot), 100 * share), spot, value, colour=look.colour, marker=look.marker)


def _lines(family: Family) -> list[tuple[str, list[Spot]]]:
    """Return a line per K with several numbers of buyers, our strategies first."""
    found: dict[tuple[str, int], list[Spot]] = {}
    for strategy, spots in family.by_strategy().items():
        for spot in spots:
            found.setdefault((strategy, spot.cell.segments), []).append(spot)
    swept = {key: spots for key, spots in found.items() if len(spots) > 1}
    order = sorted(swept, key=lambda key: (key[0] != OURS, key))[:LINES_MAX]
    return [(f"{strategy}, K={segments}", swept[strategy, segments]) for strategy, segments in order]


def _buyers(spot: Spot) -> float:
    return float(spot.cell.buyers)


def latency_by_load(facts: Facts) -> Outcome:
    """F4: p50, p99, p99.9 and the mean from the intended time, and where arrivals are shed."""
    poisson = [spot for spot in facts.select(loop="open") if spot.cell.arrivals == "poisson"]
    found = families(poisson, "offered_per_s")
    lines = [(name, spots) for family in found for name, spots in family.by_strategy().items() if len(spots) > 1]
    lines = sorted(lines, key=lambda one: (-len(one[1]), one[0] != OURS, one[0]))[:PANELS_MAX]
    if not lines:
        return NotDrawn("F4", LOAD_NAME, LOAD_TITLE, "no open sweep over three offered loads with Poisson arrivals")
    rows = (len(lines) + 1) // 2
    figure = new_figure(f"F4  {LOAD_TITLE} (open loop)", height=1.2 + 2.8 * rows)
    grid = figure.subplots(rows, min(2, len(lines)), squeeze=False, sharey=True)
    told = []
    for axes, (strategy, spots) in zip(grid.flat, lines, strict=False):
        capacity = capacity_of(facts, spots[0])
        if capacity is not None:
            told.append(f"{strategy} K={spots[0].cell.segments}: {capacity:,.1f}")
        _panel(axes, spots, capacity)
        axes.set_title(f"{strategy}, K={spots[0].cell.segments}")
    for axes in grid.flat[len(lines) :]:
        axes.set_visible(False)
    legend_below(figure, grid.flat[:1], ncols=5)
    base = f"100 % is the closed-loop capacity in orders/s: {'; '.join(told)}." if told else ""
    caption = (
        "Latency from the intended time to the answer, failed orders included; histograms of all runs added up. "
        f"Open loop, Poisson arrivals, {said(lines[0][1][0].cell, without=('segments', 'offered_per_s'))}. "
        f"{counted([spot for _, spots in lines for spot in spots])}. {base} Grey: more than {100 * SHED:g} % of the "
        "arrivals were turned away (shed): they count as failures, and in the percentiles as never answered; a mark at "
        "the upper edge is a percentile that lies among them. Void runs count too. "
        f"p99.9 is shown from 10,000 samples on. {LEGEND}"
    )
    return Drawn("F4", LOAD_NAME, LOAD_TITLE, caption, figure)


def _panel(axes: Axes, spots: list[Spot], capacity: float | None) -> None:
    def x(spot: Spot) -> float:
        offered = spot.cell.offered_per_s or 0.0
        return 100 * offered / capacity if capacity else offered

    told = [(spot, one) for spot in spots if not spot.is_void and (one := spot.percentiles("response")) is not None]
    for name, colour, marker, line in SERIES:
        known = [(spot, x(spot), value) for spot, one in told if (value := getattr(one, name)) is not None]
        _line(axes, known, {"p999": "p99.9"}.get(name, name), colour, marker, line)
    for spot, one in told:
        if one.mean is not None and not _shed(spot):
            point(axes, (x(spot), one.mean), spot, f"{number(one.mean)} ms on average", colour=BLACK, marker="+")
    axes.plot([], [], color=BLACK, marker="+", linestyle="none", label="mean")
    crosses(axes, [spot for spot in spots if spot.is_void], x=x, colour=BLACK)
    shed = [x(spot) for spot in spots if _shed(spot) > SHED]
    if shed:
        region = axes.axvspan(min(shed), max(x(spot) for spot in spots) * 1.04, color=LIGHT, zorder=0)
        region.set_gid("shed")
    log_axis(axes, "y", "latency, ms")
    axes.set_xlabel("offered load, % of capacity" if capacity else "offered load, orders/s")
    axes.set_xlim(left=0)


def _shed(spot: Spot) -> float:
    return spot.mean_of(lambda run: run.counts.shed / max(1, run.counts.planned))


def _line(
    axes: Axes, points: list[tuple[Spot, float, float]], label: str, colour: str, marker: str, line: Dashes
) -> None:
    known = [one for one in points if one[2] < CAP_MS]
    axes.plot([at for _, at, _ in known], [value for _, _, value in known], color=colour, linestyle=line)
    for spot, at, value in points:
        if value < CAP_MS:
            point(axes, (at, value), spot, f"{number(value)} ms at {label}", colour=colour, marker=marker)
        else:
            name, edge = f"{label} is of an order that was shed", axes.get_xaxis_transform()
            point(axes, (at, 0.98), spot, name, colour=colour, marker=marker, transform=edge)
    axes.plot([], [], color=colour, linestyle=line, marker=marker, label=label)


def capacity_of(facts: Facts, spot: Spot) -> float | None:
    """Return the highest closed-loop rate of the same strategy, K and critical section; None if there is none."""
    wanted = shared(spot.cell, OPEN_ONLY)
    closed = [
        other.mean
        for other in facts.select(loop="closed", strategy=spot.cell.strategy)
        if not other.is_void and shared(other.cell, OPEN_ONLY) == wanted
    ]
    return max(closed, default=None)


def spectrum(facts: Facts) -> Outcome:
    """F5: an open cell per strategy, at its highest load that was not void."""
    name = "f05-percentiles"
    best: dict[str, Spot] = {}
    opened = sorted(facts.select(loop="open"), key=lambda one: one.cell.offered_per_s or 0.0)
    for spot in sorted(opened, key=lambda one: one.cell.arrivals == "poisson"):
        if not spot.is_void and spot.histogram("response") is not None:
            best[spot.cell.strategy] = spot
    if not best:
        why = "no run of an open loop that counts; a closed loop intends no times"
        return NotDrawn("F5", name, SPECTRUM_TITLE, why)
    chosen = sorted(best.items(), key=lambda one: (one[0] != OURS, one[0]))[:PANELS_MAX]
    rows = (len(chosen) + 1) // 2
    figure = new_figure(f"F5  {SPECTRUM_TITLE} (open loop)", height=0.9 + 2.7 * rows)
    grid = figure.subplots(rows, min(2, len(chosen)), squeeze=False, sharey=True)
    for axes, (strategy, spot) in zip(grid.flat, chosen, strict=False):
        for which, colour, line in CURVES:
            _curve(axes, spot, which, colour, line)
        log_axis(axes, "y", "latency, ms")
        log_axis(axes, "x", "percentile, by 1/(1 - q)", ticks=[1 / (1 - share) for share in SHARES])
        axes.set_xticklabels([f"{100 * share:g}" for share in SHARES])
        axes.set_title(f"{strategy}, K={spot.cell.segments}, {spot.cell.offered_per_s:,g}/s offered")
        axes.legend(loc="lower right")
    for axes in grid.flat[len(chosen) :]:
        axes.set_visible(False)
    cell = chosen[0][1].cell
    caption = (
        f"Open loop ({cell.arrivals} arrivals), {said(cell, without=('segments', 'offered_per_s'))}: for each strategy "
        "the highest load whose runs count. Solid: from the intended time to the answer, what a user feels. Dashed: "
        "from sending to the answer. Orders that failed are in both. Histograms of all runs of a cell are added up, "
        f"never averaged; a curve ends where fewer than {BEYOND_MIN} samples lie beyond, or where shed orders begin."
    )
    return Drawn("F5", name, SPECTRUM_TITLE, caption, figure)


def _curve(axes: Axes, spot: Spot, which: Which, colour: str, line: Dashes) -> None:
    found = spot.histogram(which)
    if found is None:
        return
    values, shares = quantiles(found)
    count = int(found.get_total_count())
    beyond = (1 - shares) * count
    is_told = (beyond >= BEYOND_MIN - 1e-6) & (values < CAP_MS)
    words = "from the intended time" if which == "response" else "from sending"
    axes.step(
        1 / (1 - shares[is_told]),
        values[is_told],
        where="pre",
        color=colour,
        linestyle=line,
        label=f"{words}, n={count:,}",
    )

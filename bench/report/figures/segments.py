"""F1: the effect of more segments, with the ideal, the model, and lock-free strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.report.facts import ONE_LOCK, WITHOUT_LOCK, Drawn, NotDrawn, counted, families, said
from bench.report.figures.points import LEGEND, model_line, plot
from bench.report.models import lines_over_segments
from bench.report.style import from_zero, legend_below, log_axis, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.report.facts import Facts, Family, Outcome, Spot

PANELS_MAX: Final = 4
IDEAL_ROOM: Final = 1.3
"""Upper limit of y as a multiple of the highest point."""
ACROSS: Final = (ONE_LOCK, *WITHOUT_LOCK)
"""Strategies drawn across all K, for comparison with segments."""
TITLE_1: Final = "Orders a second by number of segments"


def segment_families(facts: Facts) -> list[Family]:
    """Return the closed sweeps over K, the largest first."""
    return families(facts.select(loop="closed"), "segments")


def throughput(facts: Facts) -> Outcome:
    """F1: points, the ideal, models, and lines of lock-free strategies."""
    found = segment_families(facts)[:PANELS_MAX]
    if not found:
        return NotDrawn("F1", "f01-throughput", TITLE_1, "no closed sweep over three numbers of segments")
    rows = (len(found) + 1) // 2
    is_one = len(found) == 1
    figure = new_figure(f"F1  {TITLE_1} (closed loop)", height=4.3 if is_one else 1.0 + 2.9 * rows)
    grid = figure.subplots(rows, 1 if is_one else 2, squeeze=False)
    sources = [_panel(facts, axes, family) for axes, family in zip(grid.flat, found, strict=False)]
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


def _panel(facts: Facts, axes: Axes, family: Family) -> str:
    ticks = family.values
    log_axis(axes, "x", "segments K", base=2, ticks=ticks)
    for strategy, spots in family.by_strategy().items():
        if len(spots) == 1 and strategy not in ACROSS:
            continue
        look = facts.looks[strategy]
        plot(axes, spots, look, x=_segments, label=strategy)
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


def _segments(spot: Spot) -> float:
    return float(spot.cell.segments)

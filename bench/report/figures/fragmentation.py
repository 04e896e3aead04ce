"""F9: how much was sold at the first wrong "sold out" answer, and in the end."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.report.drawn import Drawn, NotDrawn, interval_of, with_ends
from bench.report.facts import families, is_perverse, said
from bench.report.figures.points import whisker
from bench.report.figures.strategies import name
from bench.report.style import new_figure
from bench.report.svg import POINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.engine.record import Run
    from bench.report.drawn import Outcome
    from bench.report.facts import Facts, Spot

NAME: Final = "f09-fragmentation"
TITLE: Final = "Sold at the first wrong refusal, and in the end"
WHOLE: Final = 100.0
ROWS_MAX: Final = 20
LABELS: Final = ("sold at the first wrong refusal, %", "sold of min(stock, demand), %")


def fragmentation(facts: Facts) -> Outcome:
    """F9: one row per cell; 100 % if no order was refused wrongly."""
    spots = _chosen(facts)
    if not spots:
        return NotDrawn("F9", NAME, TITLE, "no cell with segments in which a buyer was refused")
    loops = "/".join(sorted({spot.cell.loop for spot in spots}))
    figure = new_figure(f"F9  {TITLE} ({loops} loop)", height=1.5 + 0.25 * len(spots))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, share, label in zip(panels, (_sold_at_first, _sold_in_the_end), LABELS, strict=True):
        for place, spot in enumerate(spots):
            values = [share(run) for run in spot.runs]
            _point(facts, axes, spot, place, values, label)
        axes.set_xlabel(label)
        axes.set_xlim(0, 112)
        axes.grid(visible=False, axis="y")
    panels[0].set_yticks(range(len(spots)), [f"{name(spot)}, {_stock(spot)}" for spot in spots])
    panels[0].set_ylim(len(spots) - 0.4, -0.6)
    counts = sorted({len(spot.runs) for spot in spots})
    caption = (
        'Left: share of the stock that was sold at the first wrong "sold out", while units were still free; 100 % '
        "means that no buyer got one. Right: share sold in the end. "
        f"{loops.capitalize()} loop, {said(spots[0].cell, without=('segments', 'stock', 'buyers'))}; {counts[0]} to "
        f"{counts[-1]} runs per cell, bars: 95 % over runs. Runs that are void because of wrong refusals are shown "
        "here, but have no rate anywhere. x begins at 0."
    )
    return Drawn("F9", NAME, TITLE, caption, figure)


def _chosen(facts: Facts) -> list[Spot]:
    """Return cells with their own small stock, or else the largest sweep over K with refusals."""
    plain = [spot for spot in facts.spots if not spot.runs[0].is_control and not is_perverse(spot) and _refusals(spot)]
    small = [spot for spot in plain if spot.cell.stock is not None]
    swept = next(iter(families([spot for spot in plain if spot.cell.loop == "closed"], "segments", least=2)), None)
    found = small or ([] if swept is None else list(swept.spots))
    return sorted(found, key=lambda spot: (spot.cell.stock or 0, spot.cell.strategy, spot.cell.segments))[:ROWS_MAX]


def _point(facts: Facts, axes: Axes, spot: Spot, place: int, values: list[float], label: str) -> None:
    look, middle = facts.looks[spot.cell.strategy], fmean(values)
    found = interval_of(values)
    named = f"{POINT}:{spot.named(f'{label} = {with_ends(middle, found)}')}"
    whisker(axes, (middle, place), found, named, colour=look.colour, marker=look.marker)
    said = "100" if middle == WHOLE else f"{middle:.1f}"
    axes.annotate(said, (middle, place), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=6.5)


def _stock(spot: Spot) -> str:
    stocks = sorted({run.checker.stock for run in spot.runs})
    return f"stock {stocks[0]:,}" + ("" if stocks[0] == stocks[-1] else f" to {stocks[-1]:,}")


def _refusals(spot: Spot) -> int:
    return sum(run.counts.sold_out for run in spot.runs)


def _sold_in_the_end(run: Run) -> float:
    demand = (run.counts.sold + run.counts.sold_out) * run.cell.quantity
    return min(WHOLE, WHOLE * run.checker.sold / max(1, min(run.checker.stock, demand)))


def _sold_at_first(run: Run) -> float:
    if not run.checker.refused_wrongly:
        return WHOLE
    count = run.series.sold_at_refusal
    if count is None:  # a session of before: to a tenth of a second
        sold, refused = np.cumsum(run.series.sold), np.flatnonzero(run.series.sold_out)
        count = int(sold[refused[0]]) if len(refused) else int(sold[-1])
    return min(WHOLE, WHOLE * count * run.cell.quantity / max(1, run.checker.stock))

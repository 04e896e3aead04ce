"""F14: how evenly buyers were served, and the longest wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bench.report_page.drawn import Drawn, NotDrawn
from bench.report_page.facts import ONE_LOCK, OURS, counted, families, said
from bench.report_page.figures.segments import segment_families
from bench.report_page.style import BLACK, from_zero, log_axis, new_figure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.granularity.record import Run
    from bench.report_page.drawn import Outcome
    from bench.report_page.facts import Facts, Spot

NAME: Final = "f14-fairness"
TITLE: Final = "How evenly buyers were served"
LINES_MAX: Final = 8
BESIDE: Final = (OURS, ONE_LOCK)
"""Strategies shown first; then the least fair of the others."""


def fairness(facts: Facts) -> Outcome:
    """F14: orders of each buyer, the fewest first; Jain's index; the longest wait and its median."""
    closed = [spot for spot in facts.usual if spot.cell.loop == "closed"]
    found = segment_families(facts) or families(closed, "segments", least=1)
    spots = [] if not found else [_most(spots) for spots in found[0].by_strategy().values()]
    spots = [spot for spot in spots if not spot.is_void and spot.whole[0].fairness and spot.percentiles("wait")]
    spots = sorted(spots, key=lambda spot: (spot.cell.strategy not in BESIDE, _jain(spot)))[:LINES_MAX]
    if not spots:
        return NotDrawn("F14", NAME, TITLE, "no closed run with orders by buyer")
    figure = new_figure(f"F14  {TITLE} (closed loop)", height=1.0 + max(2.8, 0.5 * len(spots)))
    orders, waits = figure.subplots(1, 2, width_ratios=(3, 2))
    for spot in spots:
        look = facts.looks[spot.cell.strategy]
        each = np.sort(np.mean([np.sort(_of_buyers(run)) for run in spot.whole], axis=0))
        rank = 100 * (np.arange(len(each)) + 0.5) / len(each)
        orders.plot(rank, each, color=look.colour, linestyle=look.line, label=f"{_name(spot)}: Jain {_jain(spot):.3f}")
    orders.axhline(1, color=BLACK, linewidth=0.8)
    from_zero(orders, "orders of a buyer, times the mean")
    orders.set_xlabel("buyers, the poorest first, %")
    orders.legend(loc="best", fontsize=7.5)
    for place, spot in enumerate(spots):
        look = facts.looks[spot.cell.strategy]
        longest = max(run.fairness.longest_wait_ms for run in spot.whole if run.fairness)
        middle = spot.percentiles("wait")
        half = middle.p50 if middle is not None and middle.p50 else longest
        waits.plot([half, longest], [place, place], color=look.colour, linestyle=look.line)
        waits.plot([half], [place], marker="|", markersize=10, color=look.colour, linestyle="none")
        waits.plot([longest], [place], marker=look.marker, color=look.colour, linestyle="none")
    log_axis(waits, "x", "wait, ms")
    waits.set_yticks(range(len(spots)), [_name(spot) for spot in spots])
    waits.set_ylim(len(spots) - 0.5, -0.5)
    waits.set_title("median to longest")
    caption = (
        f"Closed loop, {said(found[0].cell, without=('segments',))}; each strategy with its most segments, the "
        "least fair of them beside segment-locks and one lock, "
        f"{counted(spots)}. Right: from the median wait to the longest of all runs. Left: orders "
        "sold to each buyer within the window, sorted, the mean over runs. "
        "Jain's index is 1 if all are served alike and 1/N if one gets everything. Left y begins at 0."
    )
    return Drawn("F14", NAME, TITLE, caption, figure)


def _most(spots: list[Spot]) -> Spot:
    told = [spot for spot in spots if not spot.is_void]
    return (told or spots)[-1]


def _jain(spot: Spot) -> float:
    return spot.mean_of(lambda run: run.fairness.jain if run.fairness else 0.0)


def _name(spot: Spot) -> str:
    return f"{spot.cell.strategy}, K={spot.cell.segments}"


def _of_buyers(run: Run) -> NDArray[np.float64]:
    each = np.asarray(run.fairness.by_buyer if run.fairness else [0], dtype=np.float64)
    return each / max(1e-9, float(each.mean()))

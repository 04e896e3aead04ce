"""F5, F6 and F14: distributions of latencies and lock times, and how evenly buyers were served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bench.analysis.intervals import number
from bench.engine.percentiles import CAP_MS
from bench.report.colours import BLACK, BLUE, RED
from bench.report.drawn import Drawn, NotDrawn
from bench.report.facts import ONE_LOCK, OURS, counted, families, quantiles, said
from bench.report.figures.segments import segment_families
from bench.report.style import from_zero, log_axis, new_figure, ramp
from bench.report.svg import POINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from bench.engine.record import Run
    from bench.report.drawn import Outcome
    from bench.report.facts import Facts, Spot, Which
    from bench.report.style import Dashes

TITLE_5: Final = "Percentiles of the latency, served and from the intended time"
TITLE_6: Final = "Waiting for the critical section, and being in it"
PANELS_MAX: Final = 4
SHARES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999)
BEYOND_MIN: Final = 10
CURVES: Final[tuple[tuple[Which, str, Dashes], ...]] = (("response", RED, "-"), ("service", BLUE, (0, (5, 1.5))))
SIDES: Final[tuple[tuple[Which, str], ...]] = (("wait", "wait, ms"), ("hold", "hold, ms"))
NAME: Final = "f14-fairness"
TITLE: Final = "How evenly buyers were served"
LINES_MAX: Final = 8
BESIDE: Final = (OURS, ONE_LOCK)
"""Strategies shown first; then the least fair of the others."""


def spectrum(facts: Facts) -> Outcome:
    """F5: an open cell per strategy, at its highest load that was not void."""
    name = "f05-percentiles"
    best: dict[str, Spot] = {}
    for spot in sorted(facts.select(loop="open"), key=lambda one: (one.cell.arrivals == "poisson", _load(one))):
        if not spot.is_void and spot.histogram("response") is not None:
            best[spot.cell.strategy] = spot
    if not best:
        return NotDrawn("F5", name, TITLE_5, "no run of an open loop that counts; a closed loop intends no times")
    chosen = sorted(best.items(), key=lambda one: (one[0] != OURS, one[0]))[:PANELS_MAX]
    rows = (len(chosen) + 1) // 2
    figure = new_figure(f"F5  {TITLE_5} (open loop)", height=0.9 + 2.7 * rows)
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
        "from "
        "sending to the answer. Orders that failed are in both. Histograms of all runs of a cell are added up, never "
        f"averaged; a curve ends where fewer than {BEYOND_MIN} samples lie beyond, or where shed orders begin."
    )
    return Drawn("F5", name, TITLE_5, caption, figure)


def _load(spot: Spot) -> float:
    return spot.cell.offered_per_s or 0.0


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


def waits_and_holds(facts: Facts) -> Outcome:
    """F6: cumulative shares of orders by wait and of calls by hold; a line per K."""
    name = "f06-waits-and-holds"
    found = [family for family in segment_families(facts) if len(family.of(OURS)) > 1]
    if not found:
        return NotDrawn("F6", name, TITLE_6, f"no closed sweep of {OURS} over three numbers of segments")
    spots = [spot for spot in found[0].of(OURS) if not spot.is_void]
    figure = new_figure(f"F6  {TITLE_6} (closed loop)", height=3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (which, label) in zip(panels, SIDES, strict=True):
        for look, spot in zip(ramp(len(spots)), spots, strict=True):
            histogram = spot.histogram(which)
            if histogram is None:
                continue
            values, shares = quantiles(histogram)
            axes.step(
                values,
                100 * shares,
                where="post",
                color=look.colour,
                linestyle=look.line,
                label=f"K={spot.cell.segments}",
            )
        log_axis(axes, "x", label)
        axes.set_ylim(0, 100)
    panels[0].set_ylabel("share of calls, %")
    panels[0].legend(loc="upper left")
    samples = sum(int(one.get_total_count()) for spot in spots if (one := spot.histogram("wait")) is not None)
    caption = (
        f"Closed loop, {OURS}, {said(found[0].cell, without=('segments',))}; {samples:,} orders in all, "
        f"{counted(spots)}. Left: from "
        "asking "
        "until the critical section could begin, sold orders. Right: from then until the lock was free again, once a "
        "call. The waits are those of a full queue, since every buyer orders again at once; a user's latency is in "
        "F4 and F5."
    )
    return Drawn("F6", name, TITLE_6, caption, figure)


def fairness(facts: Facts) -> Outcome:
    """F14: orders of each buyer, the fewest first; Jain's index; the longest wait and its median."""
    found = segment_families(facts) or families(facts.select(loop="closed"), "segments", least=1)
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
        (median,) = waits.plot([half], [place], marker="|", markersize=10, color=look.colour, linestyle="none")
        (mark,) = waits.plot([longest], [place], marker=look.marker, color=look.colour, linestyle="none")
        median.set_gid(f"{POINT}:{spot.named(f'a median wait of {number(half)} ms')}")
        mark.set_gid(f"{POINT}:{spot.named(f'a longest wait of {number(longest)} ms')}")
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

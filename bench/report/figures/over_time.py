"""F7, F8 and F16: one sale over time: its rates, its segments, its orders one by one.

They are drawn from the history of a run: every call, compressed, beside the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bench.histories import calls_of
from bench.report.colours import BLACK, BLUE, GREEN, GREY, LIGHT, ORANGE, RED
from bench.report.drawn import Drawn, NotDrawn
from bench.report.facts import OURS, said, section, shared
from bench.report.style import from_zero, legend_below, log_axis, new_figure, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.engine.record import Run, Series
    from bench.report.drawn import Outcome
    from bench.report.facts import Facts, Spot

FIELDS = ("asked", "done", "sold", "sold_out", "failed")
TITLE_7: Final = "A sale over time"
TITLE_8: Final = "Units left by segment, over a sale"
TITLE_16: Final = "Every order of a sale by its outcome"
OF_SEVERAL_SKUS: Final = "cells of several skus, whose units are not read during the sale"
SALES_MAX: Final = 3
DOTS_MAX: Final = 800
LINES: Final = (
    ("offered", GREY, "-"),
    ("sold", BLUE, (0, (5, 1.5))),
    ("sold_out", ORANGE, (0, (3, 1, 1, 1))),
    ("failed", RED, (0, (1, 1))),
)


def sale_over_time(facts: Facts) -> Outcome:
    """F7: rates by outcome, and median and longest latency in bins, of the spike sale or else of a closed one."""
    name = "f07-sale-over-time"
    runs = _sales(facts)
    if not runs:
        return NotDrawn("F7", name, TITLE_7, "no run that sold")
    loop = runs[0].cell.loop
    figure = new_figure(f"F7  {TITLE_7} ({loop} loop)", height=3.8)
    grid = figure.subplots(2, len(runs), squeeze=False, sharex="col", height_ratios=(3, 2))
    for column, run in enumerate(runs):
        _rates(grid[0, column], run)
        _latency(grid[1, column], run.series)
        grid[0, column].set_title(f"{run.cell.strategy}, K={run.cell.segments}")
        grid[1, column].set_xlabel("time since the first order, s")
    legend_below(figure, grid[0, :1], ncols=5)
    arrivals = "each buyer orders again at once" if loop == "closed" else f"{runs[0].cell.arrivals} arrivals"
    caption = (
        f"One run of each strategy, the first that counts ({'; '.join(f'run {run.run}' for run in runs)}); {loop} "
        "loop, "
        f"{arrivals}, {said(runs[0].cell, without=('segments',))}. Bins of {runs[0].series.bin_s:g} s. Offered orders "
        "are at their intended time in an open loop, at their sending in a closed one; the others at their answer. "
        "Shaded: outside the measured window. Vertical line: the first refusal. Below, on a log scale: the median "
        "(bins of 10 orders or more) and the longest time of the orders answered in a bin, refusals among them; a bin "
        "has too few for a p99."
    )
    return Drawn("F7", name, TITLE_7, caption, figure)


def _sales(facts: Facts) -> list[Run]:
    spike = [spot for spot in facts.select(loop="open", arrivals="spike") if not spot.is_void]
    closed = [spot for spot in facts.select(loop="closed") if not spot.is_void]
    found: dict[str, Spot] = {}
    for spot in sorted(spike or closed, key=_interest):
        found.setdefault(spot.cell.strategy, spot)
    order = sorted(found.values(), key=lambda spot: (spot.cell.strategy != OURS, spot.cell.strategy))
    return [spot.whole[0] for spot in order[: SALES_MAX if spike else 2]]


def _interest(spot: Spot) -> tuple[float, ...]:
    cell = spot.cell
    return (-cell.segments, -cell.hold_ms, -cell.buyers, cell.batch)


def _rates(axes: Axes, run: Run) -> None:
    series = run.series
    at = np.arange(len(series.sold)) * series.bin_s
    for field, colour, line in LINES:
        counts = np.asarray(getattr(series, field), dtype=float)[: len(at)]
        axes.step(
            at[: len(counts)],
            counts / series.bin_s,
            where="post",
            color=colour,
            linestyle=line,
            label=field.replace("_", " "),
        )
    refused = np.flatnonzero(np.asarray(series.sold_out))
    if len(refused):
        axes.axvline(at[refused[0]], color=BLACK, linewidth=0.9, label="first refusal")
    _shade(axes, series, float(at[-1] + series.bin_s))
    from_zero(axes, "orders/s")


def _latency(axes: Axes, series: Series) -> None:
    for label, values, mark in (("median", series.p50_ms, "."), ("longest", series.max_ms, "^")):
        known = [((place + 0.5) * series.bin_s, value) for place, value in enumerate(values) if value is not None]
        at, each = [one for one, _ in known], [value for _, value in known]
        axes.plot(at, each, color=BLACK, marker=mark, markersize=3, linewidth=0.8, label=label)
    log_axis(axes, "y", "latency, ms")
    if all(value is None for value in series.max_ms):
        axes.set_ylim(1, 1_000)
        note(axes, "no order was answered")
    axes.legend(loc="best", ncols=2)
    _shade(axes, series, len(series.sold) * series.bin_s)


def _shade(axes: Axes, series: Series, end: float) -> None:
    for left, right in ((0.0, series.window[0]), (series.window[1], end)):
        if right > left:
            axes.axvspan(left, right, color=LIGHT, zorder=0, linewidth=0)
    axes.set_xlim(0, end)


def segment_map(facts: Facts) -> Outcome:
    """F8: units left in each segment over time."""
    name = "f08-segments-over-time"
    order = _beside_each_other(facts)
    is_left_out = any(spot.cell.skus > 1 and spot.cell.segments > 1 for spot in facts.usual)
    if not order:
        why = "no run with readings of units by segment"
        return NotDrawn("F8", name, TITLE_8, f"{why}; {OF_SEVERAL_SKUS}" if is_left_out else why)
    loop = order[0].cell.loop
    figure = new_figure(f"F8  {TITLE_8} ({loop} loop)", height=3.3)
    panels = figure.subplots(1, len(order), squeeze=False, sharey=True)[0]
    told, mesh = [], None
    for axes, run in zip(panels, order, strict=True):
        shares = np.asarray(run.series.left, dtype=float).T
        shares = 100 * shares / max(1.0, float(shares.max()))
        segments = np.arange(shares.shape[0] + 1) - 0.5
        at = run.series.left_at
        edges = [*at, at[-1] + (at[-1] - at[0]) / max(1, len(at) - 1)]
        mesh = axes.pcolormesh(edges, segments, shares, cmap="cividis", vmin=0, vmax=100, rasterized=True)
        axes.set_title(f"{run.cell.strategy}, K={run.cell.segments}")
        axes.set_xlabel("time since the first order, s")
        axes.grid(visible=False)
        told.append(
            f"{run.cell.strategy}: {run.checker.stranded:,} units stranded of {run.checker.stock:,} (run {run.run})"
        )
    panels[0].set_ylabel("segment")
    if mesh is not None:
        figure.colorbar(mesh, ax=list(panels), label="units left, % of the fullest")
    caption = (
        "A strategy that falls back empties all segments together; a bright row at the end is stock that no buyer was "
        "offered. Dark: empty. "
        f"One run each, {loop} loop, {section(order[0].cell)}, {order[0].cell.buyers} buyers. {'; '.join(told)}."
    )
    if is_left_out:
        caption += f" Not shown: {OF_SEVERAL_SKUS}."
    return Drawn("F8", name, TITLE_8, caption, figure)


def _beside_each_other(facts: Facts) -> list[Run]:
    """Return runs in the setting that most strategies share: ours first, then other segment ones, faults first."""
    found: dict[str, dict[str, Run]] = {}
    for spot in sorted(facts.usual, key=lambda one: (one.cell.loop != "closed", *_interest(one))):
        run = spot.first
        if len(run.series.left) > 1 and run.cell.segments > 1:
            found.setdefault(shared(spot.cell, ()), {}).setdefault(spot.cell.strategy, run)
    group = max(found.values(), key=lambda runs: (OURS in runs, len(runs)), default={})
    return sorted(group.values(), key=_by_kind)[:SALES_MAX]


def _by_kind(run: Run) -> tuple[bool, bool, int, str]:
    cell = run.cell
    has_a_lock_each = run.lanes == min(cell.segments, cell.buyers)
    return cell.strategy != OURS, not has_a_lock_each, -run.checker.refused_wrongly, cell.strategy


def outcomes(facts: Facts) -> Outcome:
    """F16: each order at its answer, by outcome and latency."""
    name = "f16-outcomes"
    chosen = shown_order_by_order(facts)
    calls = None
    if chosen is not None and facts.folder is not None:
        calls = calls_of(facts.folder, chosen, FIELDS, size_max=facts.history_max)
    if chosen is None or calls is None or not len(calls["done"]):
        return NotDrawn("F16", name, TITLE_16, "no history of calls beside the results")
    figure = new_figure(f"F16  {TITLE_16} ({chosen.cell.loop} loop)", height=3.4)
    axes = figure.subplots()
    took = np.maximum(1e-3, (calls["done"] - calls["asked"]) * 1_000)
    kinds = (
        ("sold", calls["sold"] > 0, GREEN, "."),
        ("sold out", (calls["sold"] == 0) & (calls["sold_out"] > 0), ORANGE, "|"),
        ("failed, outcome unknown", calls["failed"] > 0, RED, "x"),
    )
    for label, is_kind, colour, marker in kinds:
        places = np.flatnonzero(is_kind)
        every = max(1, len(places) // DOTS_MAX) if label != "failed, outcome unknown" else 1
        shown = places[::every]
        thinned = f", 1 of {every} drawn" if every > 1 else ""
        dots = axes.plot(
            calls["done"][shown],
            took[shown],
            linestyle="none",
            color=colour,
            marker=marker,
            markersize=4,
            label=f"{label}: {len(places):,}{thinned}",
        )
        dots[0].set_gid(f"outcome:{label}")
    log_axis(axes, "y", "from sending to the answer, ms")
    axes.set_xlabel("time since the first order, s")
    axes.set_xlim(left=0)
    axes.set_ylim(top=float(took.max()) * 6)
    axes.legend(loc="upper left", ncols=3)
    caption = (
        f"Run {chosen.run}: {chosen.cell_id}, {chosen.cell.loop} loop; calls at the second of their answer. "
        "A call that failed may or may not have had its effect. No fault was injected in this run."
    )
    return Drawn("F16", name, TITLE_16, caption, figure)


def shown_order_by_order(facts: Facts) -> Run | None:
    """Choose a run with failed calls, else a spike, else the sale with the most segments."""
    if facts.folder is None:
        return None
    kept = [run for spot in facts.spots for run in spot.runs if run.history and not run.is_control]
    there = [run for run in kept if (facts.folder / str(run.history)).is_file()]
    return min(
        there,
        key=lambda run: (
            run.counts.failed <= run.counts.shed,
            run.cell.arrivals != "spike",
            -run.cell.segments,
            run.run,
        ),
        default=None,
    )

"""S: all strategies under the same conditions; F10: the cost of a sold order by strategy.

U: the cases in which segments should lose, measured and shown like the others.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from bench.report.facts import (
    Drawn,
    Family,
    NotDrawn,
    counted,
    families,
    is_perverse,
    said,
    segment_families,
    shared,
    with_ends,
)
from bench.report.points import LEGEND, across_bar, gid, void_gid, whisker
from bench.report.style import log_axis, new_figure, plain
from bench.report.tables import CellRow, cell_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from bench.engine.record import Run
    from bench.report.facts import Facts, Family, Outcome, Spot

STRATEGIES_NAME: Final = "s-strategies"
STRATEGIES_TITLE: Final = "Every strategy side by side"
PANELS_MAX: Final = 2
WORK_NAME: Final = "f10-work"
WORK_TITLE: Final = "Work for one sold order"
ROWS_MAX: Final = 22
MEASURES: Final[tuple[tuple[Callable[[Run], float], str], ...]] = (
    (lambda run: run.work.attempts, "lock requests"),
    (lambda run: run.work.commands, "server commands"),
    (lambda run: run.work.server_us, "server CPU, µs"),
    (lambda run: run.work.bytes, "bytes in + out"),
)


def strategies(facts: Facts) -> Outcome:
    """S: orders per second of every strategy at each K, in the settings with the most strategies."""
    found = families(facts.select(loop="closed"), "segments", "batch", least=1)
    found = sorted(found, key=lambda one: -len(one.by_strategy()))[:PANELS_MAX]
    found = [one for one in found if len(one.by_strategy()) > 2]  # noqa: PLR2004  # two strategies are a ratio, shown in F15
    if not found:
        return NotDrawn("S", STRATEGIES_NAME, STRATEGIES_TITLE, "no setting in which three strategies were run")
    groups = [_rows(family) for family in found]
    figure = new_figure(
        f"S  {STRATEGIES_TITLE} (closed loop)", height=1.2 + sum(0.5 + 0.21 * len(rows) for rows in groups)
    )
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=[1 + len(rows) for rows in groups])[:, 0]
    for axes, family, rows in zip(panels, found, groups, strict=True):
        for place, spot in enumerate(rows):
            across(facts, axes, spot, place)
        axes.set_yticks(range(len(rows)), [name(spot) for spot in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_title(said(family.cell, without=("segments", "batch")))
        log_axis(axes, "x", "orders/s")
        axes.grid(visible=False, axis="y")
    caption = (
        f"Closed loop. Orders that hold stock a second; {counted([spot for rows in groups for spot in rows])}. They do "
        f"not promise the same: the guarantees stand beside the rates in the table. {LEGEND}"
    )
    return Drawn("S", STRATEGIES_NAME, STRATEGIES_TITLE, caption, figure)


def across(facts: Facts, axes: Axes, spot: Spot, place: float) -> None:
    """Draw one cell on its own row: a point and its interval, or a cross at the left for void runs."""
    look = facts.looks[spot.cell.strategy]
    if spot.has_void or not spot.mean:
        (mark,) = axes.plot(
            [0.012], [place], transform=axes.get_yaxis_transform(), marker="x", color=look.colour, linestyle="none"
        )
        mark.set_gid(void_gid(spot))
    if spot.is_void or not spot.mean:
        return
    named = gid(spot, f"{with_ends(spot.mean, spot.interval)} orders/s")
    at = spot.mean, place
    whisker(axes, at, spot.interval, named, colour=look.colour, marker=look.marker, is_hollow=bool(spot.saturated))


def name(spot: Spot) -> str:
    """Name a cell among others of the same setting."""
    batch = f", B={spot.cell.batch}" if spot.cell.batch > 1 else ""
    return f"{spot.cell.strategy}, K={spot.cell.segments}{batch}"


def _rows(family: Family) -> list[Spot]:
    """Order the strategies by their best rate, and the cells of each by K."""
    groups = list(family.by_strategy().values())
    groups.sort(key=lambda spots: -max(0.0 if spot.is_void else spot.mean for spot in spots))
    return [spot for spots in groups for spot in sorted(spots, key=lambda one: (one.cell.batch, one.cell.segments))]


def work(facts: Facts) -> Outcome:
    """F10: four bars per cell; the units differ, so they are side by side, not stacked."""
    found = segment_families(facts) or families(facts.select(loop="closed"), "segments", least=1)
    if not found:
        return NotDrawn("F10", WORK_NAME, WORK_TITLE, "no closed run")
    spots = _some_of(found[0])
    figure = new_figure(f"F10  {WORK_TITLE} (closed loop)", height=1.2 + 0.24 * len(spots))
    panels = figure.subplots(1, len(MEASURES), sharey=True)
    places = range(len(spots))
    for axes, (get, label) in zip(panels, MEASURES, strict=True):
        values = [spot.mean_of(get) for spot in spots]
        for place, spot, value in zip(places, spots, values, strict=True):
            look = facts.looks[spot.cell.strategy]
            known, hatch = spot.interval_of(get), "xx" if spot.is_void else None
            named = gid(spot, f"{label} an order = {with_ends(value, known)}")
            bar = across_bar(axes, (value, place), known, named, colour=look.colour, height=0.72, hatch=hatch)
            axes.bar_label(bar, [f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}"], fontsize=6.5, padding=3)  # noqa: PLR2004  # three digits are enough
        axes.set_xlabel(label)
        axes.set_xlim(0, 1.32 * max(values, default=1.0) or 1.0)
        axes.xaxis.set_major_formatter(plain)
        axes.locator_params(axis="x", nbins=3)
        axes.grid(visible=False, axis="y")
    panels[0].set_yticks(list(places), [f"{spot.cell.strategy}, K={spot.cell.segments}" for spot in spots])
    panels[0].invert_yaxis()
    caption = (
        f"Closed loop, {said(found[0].cell, without=('segments',))}; {counted(spots)}. From the warm-up on, for "
        "three quarters of the planned seconds, divided by the orders sold in them; a sale of a fixed stock counts "
        "whole, with its refusals. Commands, CPU and bytes are those of Redis, by its own count, commands inside "
        "scripts included; those of a Celery broker, and all of PostgreSQL, are not in them. Bars: 95 % over runs. "
        "Hatched: the cell is void. All axes begin at 0."
    )
    return Drawn("F10", WORK_NAME, WORK_TITLE, caption, figure)


def _some_of(family: Family) -> list[Spot]:
    """Return every K of every strategy; if there are too many, the first, a middle and the last of each."""
    groups = list(family.by_strategy().values())
    if sum(map(len, groups)) > ROWS_MAX:
        groups = [[spots[one] for one in sorted({0, len(spots) // 2, len(spots) - 1})] for spots in groups]
    return [spot for spots in groups for spot in spots][: 2 * ROWS_MAX]


# --- unfavourable cases ---

NAME: Final = "u-unfavourable"
TITLE: Final = "Where segments should lose"
CASES: Final = {
    "one-unit": "one unit of stock",
    "cancel-storm": "orders are cancelled by the hundred",
    "restock": "units come in mid-sale",
}


def unfavourable(facts: Facts) -> list[tuple[str, list[Spot]]]:
    """Return the cells by case: those of the plan's unfavourable sweeps, and one client alone."""
    groups: dict[str, list[Spot]] = defaultdict(list)
    for spot in facts.spots:
        if is_perverse(spot) or (spot.cell.buyers == 1 and spot.cell.loop == "closed"):
            groups[shared(spot.cell, ("segments", "batch"))].append(spot)
    return [(_case(spots[0]), sorted(spots, key=lambda one: one.cell.strategy)) for _, spots in sorted(groups.items())]


def unfavourable_rows(facts: Facts) -> list[tuple[str, list[CellRow]]]:
    """Return the cells as rows of a table, by case."""
    return [(case, [cell_row(spot, facts.core_hour) for spot in spots]) for case, spots in unfavourable(facts)]


def _case(spot: Spot) -> str:
    cell = spot.cell
    words = CASES.get(cell.case or "", "")
    if not words and cell.buyers == 1 and cell.loop == "closed":
        words = "one client"
    if not words and cell.quantity > 1:
        words = "orders of many units"
    if not words and cell.stock is not None and cell.stock < cell.segments:
        words = "fewer units than segments"
    if not words and cell.loop == "open":
        words = "hardly anybody comes"
    rest = said(cell, without=("segments", "case"))
    return f"{words}: {rest}, {cell.loop} loop" if words else f"{rest}, {cell.loop} loop"


def unfavourable_figure(facts: Facts) -> Outcome:
    """Draw the rates of every case, with their intervals, on one log axis."""
    groups = unfavourable(facts)
    if not groups:
        return NotDrawn("U", NAME, TITLE, "no case of the unfavourable page was run")
    count = sum(len(spots) for _, spots in groups)
    figure = new_figure(
        "U  Where segments should lose (each case names its loop)", height=1.2 + 0.25 * count + 0.3 * len(groups)
    )
    axes = figure.subplots()
    places: list[float] = []
    labels: list[str] = []
    place = 0.0
    for case, spots in groups:
        axes.annotate(
            case, (0.005, place), xycoords=axes.get_yaxis_transform(), fontsize=7.5, fontweight="bold", va="center"
        )
        for spot in spots:
            place += 1
            places.append(place)
            labels.append(name(spot))
            across(facts, axes, spot, place)
        place += 1.4
    axes.set_yticks(places, labels)
    axes.set_ylim(place - 0.4, -0.9)
    log_axis(axes, "x", "orders/s")
    axes.grid(visible=False, axis="y")
    runs = sorted({len(spot.whole) for _, spots in groups for spot in spots})
    span = f"{runs[0]}" if runs[0] == runs[-1] else f"{runs[0]} to {runs[-1]}"
    caption = (
        "The cases of the plan in which segments cannot help, or should hurt, and one client alone. Orders that hold "
        f"stock a second, n = {span} runs a point, bars: 95 % over runs; the loop model is in each row. In an open "
        "loop the rate is what arrived, unless more came than could be served. Where a sale ends within a second, as "
        "with one unit, the rate says little: see the table for what was sold and refused. Cross: void, no value. "
        "Hollow: something was saturated."
    )
    return Drawn("U", NAME, TITLE, caption, figure)

"""The cases in which segments should lose, measured and shown like the others."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from bench.report.facts import Drawn, NotDrawn, is_perverse, said, shared
from bench.report.figures.strategies import across, name
from bench.report.style import log_axis, new_figure
from bench.report.tables import CellRow, cell_row

if TYPE_CHECKING:
    from bench.report.facts import Facts, Outcome, Spot

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
        f"stock a second, n = {span} runs a point, bars: 95 % over runs; the loop model is in each "
        "row. "
        "In an open loop the rate is what arrived, unless more came than could be served. Where a sale ends within a "
        "second, as with one unit, the rate says little: see the table for what was sold and refused. Cross: void, no "
        "value. Hollow: something was saturated."
    )
    return Drawn("U", NAME, TITLE, caption, figure)

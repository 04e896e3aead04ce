"""F10: the cost of a sold order by strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.report_page.drawn import Drawn, NotDrawn
from bench.report_page.facts import Family, counted, families, said
from bench.report_page.figures.segments import segment_families
from bench.report_page.style import new_figure, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.granularity.record import Run
    from bench.report_page.drawn import Outcome
    from bench.report_page.facts import Facts, Spot

NAME: Final = "f10-work"
TITLE: Final = "Work for one sold order"
ROWS_MAX: Final = 22
MEASURES: Final[tuple[tuple[Callable[[Run], float], str], ...]] = (
    (lambda run: run.work.attempts, "lock requests"),
    (lambda run: run.work.commands, "server commands"),
    (lambda run: run.work.server_us, "server CPU, µs"),
    (lambda run: run.work.bytes, "bytes in + out"),
)


def work(facts: Facts) -> Outcome:
    """F10: four bars per cell; the units differ, so they are side by side, not stacked."""
    closed = [spot for spot in facts.usual if spot.cell.loop == "closed"]
    found = segment_families(facts) or families(closed, "segments", least=1)
    if not found:
        return NotDrawn("F10", NAME, TITLE, "no closed run")
    spots = _rows(found[0])
    figure = new_figure(f"F10  {TITLE} (closed loop)", height=1.2 + 0.24 * len(spots))
    panels = figure.subplots(1, len(MEASURES), sharey=True)
    places = range(len(spots))
    for axes, (get, label) in zip(panels, MEASURES, strict=True):
        values = [spot.mean_of(get) for spot in spots]
        for place, spot, value in zip(places, spots, values, strict=True):
            look = facts.looks[spot.cell.strategy]
            bounds = spot.interval_of(get) or (value, value)
            bar = axes.barh(
                place,
                value,
                color="white" if spot.is_void else look.colour,
                edgecolor=look.colour,
                hatch="xx" if spot.is_void else None,
                xerr=[[max(0.0, value - bounds[0])], [max(0.0, bounds[1] - value)]],
                error_kw={"elinewidth": 0.9, "capsize": 2},
                height=0.72,
            )
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
    return Drawn("F10", NAME, TITLE, caption, figure)


def _rows(family: Family) -> list[Spot]:
    """Return every K of every strategy; if there are too many, the first, a middle and the last of each."""
    groups = list(family.by_strategy().values())
    if sum(map(len, groups)) > ROWS_MAX:
        groups = [[spots[one] for one in sorted({0, len(spots) // 2, len(spots) - 1})] for spots in groups]
    return [spot for spots in groups for spot in spots][: 2 * ROWS_MAX]

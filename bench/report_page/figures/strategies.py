"""S: all strategies under the same conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.report_page.drawn import Drawn, NotDrawn
from bench.report_page.facts import counted, families, said
from bench.report_page.figures.points import HOLLOW_GID, LEGEND, VOID_GID
from bench.report_page.style import log_axis, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.report_page.drawn import Outcome
    from bench.report_page.facts import Facts, Family, Spot

NAME: Final = "s-strategies"
TITLE: Final = "Every strategy side by side"
PANELS_MAX: Final = 2


def strategies(facts: Facts) -> Outcome:
    """S: orders per second of every strategy at each K, in the settings with the most strategies."""
    closed = [spot for spot in facts.usual if spot.cell.loop == "closed"]
    found = families(closed, "segments", "batch", least=1)
    found = sorted(found, key=lambda one: -len(one.by_strategy()))[:PANELS_MAX]
    found = [one for one in found if len(one.by_strategy()) > 2]  # noqa: PLR2004  # two strategies are a ratio, shown in F15
    if not found:
        return NotDrawn("S", NAME, TITLE, "no setting in which three strategies were run")
    groups = [_rows(family) for family in found]
    figure = new_figure(f"S  {TITLE} (closed loop)", height=1.2 + sum(0.5 + 0.21 * len(rows) for rows in groups))
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
        f"Closed loop. Orders that hold stock a second; {counted([spot for rows in groups for spot in rows])}. They "
        "do not "
        f"promise the same: the guarantees stand beside the rates in the table. {LEGEND}"
    )
    return Drawn("S", NAME, TITLE, caption, figure)


def across(facts: Facts, axes: Axes, spot: Spot, place: float) -> None:
    """Draw one cell on its own row: a point and its interval, or a cross at the left for void runs."""
    look = facts.looks[spot.cell.strategy]
    if spot.has_void or not spot.mean:
        (mark,) = axes.plot(
            [0.012], [place], transform=axes.get_yaxis_transform(), marker="x", color=look.colour, linestyle="none"
        )
        mark.set_gid(f"{VOID_GID}:{spot.cell.cell_id}")
    if spot.is_void or not spot.mean:
        return
    low, high = spot.interval or (spot.mean, spot.mean)
    bar = axes.errorbar(
        [spot.mean],
        [place],
        xerr=[[max(0.0, spot.mean - low)], [max(0.0, high - spot.mean)]],
        fmt=look.marker,
        color=look.colour,
        markerfacecolor="white" if spot.is_hollow else look.colour,
        capsize=2.5,
    )
    bar.lines[0].set_gid(f"{HOLLOW_GID if spot.is_hollow else 'point'}:{spot.cell.cell_id}")


def name(spot: Spot) -> str:
    """Name a cell among others of the same setting."""
    batch = f", B={spot.cell.batch}" if spot.cell.batch > 1 else ""
    return f"{spot.cell.strategy}, K={spot.cell.segments}{batch}"


def _rows(family: Family) -> list[Spot]:
    """Order the strategies by their best rate, and the cells of each by K."""
    groups = sorted(family.by_strategy().values(), key=lambda spots: -max(_rate(spot) for spot in spots))
    return [spot for spots in groups for spot in sorted(spots, key=lambda one: (one.cell.batch, one.cell.segments))]


def _rate(spot: Spot) -> float:
    return 0.0 if spot.is_void else spot.mean

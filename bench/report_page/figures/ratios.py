"""F15: ratios with their intervals, and the noise floor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.report_page.comparisons import compared, noise
from bench.report_page.drawn import Drawn, NotDrawn
from bench.report_page.style import BLACK, BLUE, GREY, LIGHT, log_axis, new_figure

if TYPE_CHECKING:
    from bench.report_page.drawn import Outcome
    from bench.report_page.facts import Facts

NAME: Final = "f15-ratios"
TITLE: Final = "Ratios and the noise floor"
ROWS_MAX: Final = 24


def ratios(facts: Facts) -> Outcome:
    """F15: one row per comparison; the band is the noise floor."""
    floor = noise(facts)
    rows = [*floor.rows, *compared(facts)][:ROWS_MAX]
    if not rows:
        return NotDrawn("F15", NAME, TITLE, "neither an A/A row nor two strategies that differ in nothing else")
    figure = new_figure(f"F15  {TITLE} (each row names its loop)", height=1.3 + 0.27 * len(rows))
    axes = figure.subplots()
    if floor.band is not None:
        band = axes.axvspan(*floor.band, color=LIGHT, zorder=0, label="noise floor: no difference within")
        band.set_gid("noise")
    axes.axvline(1, color=BLACK, linewidth=0.8)
    for place, row in enumerate(rows):
        colour = GREY if row.is_same_code else BLUE
        low, high = row.interval or (row.ratio, row.ratio)
        is_open = row.is_hollow
        axes.errorbar(
            [row.ratio],
            [place],
            xerr=[[max(0.0, row.ratio - low)], [max(0.0, high - row.ratio)]],
            fmt="D" if row.is_same_code else "o",
            color=colour,
            markerfacecolor="white" if is_open else colour,
            capsize=3,
        )
        axes.annotate(row.said, (1.01, place), xycoords=axes.get_yaxis_transform(), va="center", fontsize=7.5)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    log_axis(axes, "x", "ratio of orders/s", base=2)
    axes.grid(visible=False, axis="y")
    if floor.band is not None:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center")
    caption = (
        "Each row: orders/s of the first divided by those of the second, all else equal: the geometric mean over "
        "rounds, "
        "with its 95 % bootstrap interval; at the right the two absolute rates and the rounds. Diamonds: the same "
        "code run "
        f"twice a round. {floor.said} Hollow: one of the two saturated something."
    )
    return Drawn("F15", NAME, TITLE, caption, figure)

"""Draws the chart of the start page and the four rows of the README's table from a published session.

`python -m bench.readme_chart SESSION CHART`: SESSION is a folder with results.jsonl. The chart is written to the file
CHART, and the table to standard output.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from bench.analysis.intervals import number
from bench.engine.record import read_results
from bench.report.facts import Facts, Spot
from bench.report.style import BLUE, GREY, as_svg, house_style, new_figure
from bench.report.tables import main_family, main_setting, with_interval
from segmented.errors import InvalidInput

ONE_LOCK: Final = ("segment-locks", 1)
TWENTY: Final = ("segment-locks", 20)
BARS: Final = {
    ("global-redis-py", 1): "redis-py's Lock, one key",
    ONE_LOCK: "segmented, one lock",
    ("segment-locks", 4): "segmented, 4 locks",
    ("segment-locks", 16): "segmented, 16 locks",
    TWENTY: "segmented, 20 locks",
}
ROWS: Final = {
    ("global-redis-py", 1): "redis-py's `Lock`, one key",
    ONE_LOCK: "`segmented`, one lock",
    TWENTY: "`segmented`, 20 locks",
    ("one-script", 1): "one script, the slow step outside any lock",
}


def spots_of(facts: Facts) -> dict[tuple[str, int], Spot]:
    """Return the cells of the main comparison by strategy and locks. Raises InvalidInput if one is missing."""
    family = main_family(facts)
    found = {
        (one.cell.strategy, one.cell.segments): one for one in (family.spots if family else ()) if not one.has_void
    }
    for strategy, segments in {**BARS, **ROWS}:
        if (strategy, segments) not in found:
            message = f"the session has no unbroken runs of {strategy} with {segments} segments: take a published one"
            raise InvalidInput(message)
    return found


def chart(facts: Facts) -> str:
    """Return the bar chart as SVG: orders per second by number of locks, and the ratio of 20 locks to one."""
    spots = spots_of(facts)
    rates = {name: spots[key].mean for key, name in BARS.items()}
    labels = [f"{number(rate)} orders/s" for rate in rates.values()]
    labels[-1] += f" = {spots[TWENTY].mean / spots[ONE_LOCK].mean:.1f} times"
    runs = min(len(spots[key].runs) for key in BARS)
    with house_style():
        figure = new_figure("More locks on one stock sell more: 20 ms of slow work under each lock", height=2.6)
        axes = figure.subplots()
        colours = [BLUE if key == TWENTY else GREY for key in BARS]
        axes.bar_label(axes.barh(list(rates), list(rates.values()), color=colours), labels, padding=4)
        axes.set_xlim(0, 1.4 * max(rates.values()))
        axes.invert_yaxis()
        axes.xaxis.set_visible(False)
        axes.grid(visible=False)
        axes.set_title(f"{main_setting(facts)}; means of {runs} runs, each sale checked, nothing oversold", fontsize=8)
        return as_svg(figure, "locks")


def table(facts: Facts) -> str:
    """Return the README's four rows: strategy, locks, orders per second, ratio to one lock."""
    spots = spots_of(facts)
    one = spots[ONE_LOCK].mean
    lines = [
        "| each order works 20 ms under the lock | locks | orders/s [95 %] | times one lock |",
        "| --- | --: | --: | --: |",
    ]
    for key, name in ROWS.items():
        locks = "0" if key[0] == "one-script" else str(key[1])
        lines.append(f"| {name} | {locks} | {with_interval(spots[key])} | {spots[key].mean / one:.3g} |")
    return "\n".join([*lines, ""])


def main(session: Path, picture: Path) -> None:
    """Write the chart and print the table."""
    facts = Facts(read_results(session / "results.jsonl"))
    picture.write_text(chart(facts), encoding="utf-8")
    sys.stdout.write(table(facts))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""Draws the README's chart, light and dark, and the four rows of its table from a published session.

`python -m bench.readme_chart SESSION CHARTS`: SESSION is a folder with results.jsonl. The charts are written to the
folder CHARTS, and the table to standard output.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.analysis.intervals import number
from bench.engine.record import read_results
from bench.report.facts import Facts, Spot
from bench.report.tables import main_family, main_setting, with_interval
from segmented.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one chart."""

    text: str
    faint: str
    bar: str
    best: str


PALETTES: Final = {
    "light": Palette(text="#1f2328", faint="#59636e", bar="#8c959f", best="#0969da"),
    "dark": Palette(text="#e6edf3", faint="#9198a1", bar="#6e7681", best="#4493f8"),
}
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
WIDTH: Final = 760
LEFT: Final = 180
BAR: Final = 26
STEP: Final = 40
TOP: Final = 58
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def spots_of(facts: Facts) -> dict[tuple[str, int], Spot]:
    """Return the cells of the main comparison by strategy and locks. Raises InvalidInput if one is missing."""
    family = main_family(facts)
    spots = [] if family is None else [spot for spots in family.by_strategy().values() for spot in spots]
    found = {(spot.cell.strategy, spot.cell.segments): spot for spot in spots if not spot.has_void}
    for strategy, segments in {**BARS, **ROWS}:
        if (strategy, segments) not in found:
            message = f"the session has no unbroken runs of {strategy} with {segments} segments: take a published one"
            raise InvalidInput(message)
    return found


def chart(facts: Facts, palette: Palette) -> str:
    """Return the bar chart as SVG: orders per second by number of locks, and the ratio of 20 locks to one."""
    spots = spots_of(facts)
    most = max(spots[key].mean for key in BARS)
    scale = (WIDTH - LEFT - 240) / most
    lines = []
    for index, (key, name) in enumerate(BARS.items()):
        y, length = TOP + index * STEP, max(2.0, spots[key].mean * scale)
        said = f"{number(spots[key].mean)} orders/s"
        if key == TWENTY:
            said += f" = {spots[key].mean / spots[ONE_LOCK].mean:.1f} times"
        colour = palette.best if key == TWENTY else palette.bar
        middle = y + BAR / 2 + 5
        lines += [
            text_at(LEFT - 12, middle, name, f'text-anchor="end" fill="{palette.text}"'),
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3" fill="{colour}"/>',
            text_at(
                LEFT + length + 8, middle, said, f'fill="{palette.text}" font-weight="{600 if key == TWENTY else 400}"'
            ),
        ]
    height = TOP + len(BARS) * STEP
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="{FONT}" font-size="14"'
    runs = min(len(spots[key].runs) for key in BARS)
    below = f"{main_setting(facts)}; means of {runs} runs, each sale checked, nothing oversold"
    head = "More locks on one stock sell more: 20 ms of slow work under each lock"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{alt(facts)}">',
            text_at(0, 20, head, f'fill="{palette.text}" font-size="16" font-weight="600"'),
            text_at(0, 41, below, f'fill="{palette.faint}" font-size="13"'),
            *lines,
            "</svg>",
            "",
        ]
    )


def text_at(x: float, y: float, words: str, look: str) -> str:
    """Return words at a place, with attributes of their look."""
    return f'<text x="{x:g}" y="{y:g}" {look}>{words}</text>'


def alt(facts: Facts) -> str:
    """Return a one-sentence description of the chart."""
    spots = spots_of(facts)
    one, twenty = spots[ONE_LOCK].mean, spots[TWENTY].mean
    times = f"{twenty / one:.1f} times as many"
    return f"20 segment locks sold {number(twenty)} orders a second, one lock {number(one)}: {times}"


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


def main(session: Path, charts: Path) -> None:
    """Write the charts and print the table."""
    facts = Facts(read_results(session / "results.jsonl"))
    for name, palette in PALETTES.items():
        (charts / f"locks-{name}.svg").write_text(chart(facts, palette), encoding="utf-8")
    sys.stdout.write(table(facts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.readme_chart", description="Draw the README's chart.")
    parser.add_argument("session", metavar="SESSION", type=Path, help="folder with results.jsonl")
    parser.add_argument("charts", metavar="CHARTS", type=Path, help="folder of locks-light.svg and locks-dark.svg")
    given = parser.parse_args()
    main(given.session, given.charts)

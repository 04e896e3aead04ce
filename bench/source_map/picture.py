"""Draws traces as SVG: folders are columns, files are boxes in them, one a row, and an arrow leads to each first entry.

One picture serves light and dark pages: its colours follow the reader's setting.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from bench.readme_chart import FONT, PALETTES
from bench.source_map.trace import DATABASE

if TYPE_CHECKING:
    from bench.readme_chart import Palette
    from bench.source_map.trace import Trace

LEFT: Final = 276
"""Width of the names of functions."""
PITCH: Final = 96
GUTTER: Final = 16
"""Left of a folder's boxes: the lines that lead to what its files call."""
LANES: Final = 4
LETTER: Final = 7.1
ROW: Final = 24
BOX: Final = 19
HEAD: Final = 62
"""Height above the rows of a trace: its title and the names of folders."""
BELOW: Final = 22
BOXES: Final = {"light": "#ffffff", "dark": "#151b23"}
BANDS: Final = {"light": "#f1f4f7", "dark": "#1d242d"}


def picture(head: str, traces: list[Trace]) -> str:
    """Return the picture of some traces, one below the other."""
    width = max(_right(trace) for trace in traces)
    lines: list[str] = []
    top = 34
    for trace in traces:
        lines += _panel(trace, top)
        top += HEAD + ROW * len(trace.entries) + BELOW
    size = f'viewBox="0 0 {width} {top}" width="{width}" height="{top}" font-family="{FONT}" font-size="12"'
    said = "; ".join(f"{trace.title}: {count(trace)}" for trace in traces)
    tip = '<path class="a" d="M0 0L7 3.5L0 7z"/>'
    arrow = f'<marker id="m" markerWidth="7" markerHeight="7" refX="6.5" refY="3.5" orient="auto">{tip}</marker>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(f"{head}. {said}")}">',
            f"<style>{_style('light')}@media(prefers-color-scheme:dark){{{_style('dark')}}}</style>",
            f"<defs>{arrow}</defs>",
            f'<text class="t" x="0" y="18" font-size="16" font-weight="600">{escape(head)}</text>',
            *lines,
            "</svg>",
            "",
        ]
    )


def count(trace: Trace) -> str:
    """Return how far a trace goes, in words."""
    return f"{trace.moves} moves between {trace.files} files"


def _style(name: str) -> str:
    palette: Palette = PALETTES[name]
    return (
        f".t{{fill:{palette.text}}}.f,.a{{fill:{palette.faint}}}.r{{fill:{BANDS[name]}}}"
        f".b{{fill:{BOXES[name]};stroke:{palette.bar}}}.e{{fill:{BOXES[name]};stroke:{palette.best};stroke-width:2}}"
        f".l{{fill:none;stroke:{palette.faint};marker-end:url(#m)}}"
    )


def _right(trace: Trace) -> int:
    """Return where a trace ends, with the boxes that are wider than their folder."""
    folders = _folders(trace)
    starts = [LEFT + PITCH * folders.index(entry.folder) + GUTTER for entry in trace.entries]
    ends = [start + _width(trace, number) for number, start in enumerate(starts, start=1)]
    return round(max(LEFT + PITCH * len(folders), *ends)) + 4


def _folders(trace: Trace) -> list[str]:
    return list(dict.fromkeys(entry.folder for entry in trace.entries))


def _panel(trace: Trace, top: int) -> list[str]:
    first = top + HEAD
    height = ROW * len(trace.entries)
    columns = {folder: LEFT + PITCH * index for index, folder in enumerate(_folders(trace))}
    lines = [
        f'<text class="t" x="0" y="{top + 20}" font-size="14" font-weight="600">{escape(trace.title)}</text>',
        f'<text class="f" x="{LEFT}" y="{top + 20}" font-size="14">{count(trace)}</text>',
    ]
    for folder, x in columns.items():
        lines += [
            f'<rect class="r" x="{x}" y="{top + 32}" width="{PITCH - 4}" height="{height + HEAD - 26}" rx="5"/>',
            f'<text class="t" x="{x + 5}" y="{top + 48}" font-weight="600">{escape(_label(folder))}</text>',
        ]
    rows = {entry.place: (columns[entry.folder], first + ROW * index) for index, entry in enumerate(trace.entries)}
    lanes = _lanes(trace)
    lines += [
        _arrow(rows[entry.caller], rows[entry.place], lanes[entry.caller], _width(trace, number))
        for number, entry in enumerate(trace.entries, start=1)
        if entry.caller is not None
    ]
    for number, entry in enumerate(trace.entries, start=1):
        x, y = rows[entry.place]
        look = "b" if entry.place.endswith(".py") else "e"
        width = _width(trace, number)
        lines += [
            f'<text class="f" x="0" y="{y + 14}">{number} {escape(entry.function)}</text>',
            f'<rect class="{look}" x="{x + GUTTER}" y="{y}" width="{width:g}" height="{BOX}" rx="3"/>',
            f'<text class="t" x="{x + GUTTER + 5}" y="{y + 14}">{escape(_box(trace, number))}</text>',
        ]
    return lines


def _label(folder: str) -> str:
    if not folder:
        return "segmented/"
    return folder if folder == DATABASE else f"{folder}/"


def _lanes(trace: Trace) -> dict[str, int]:
    """Return for each file that calls others which of its folder's lines is its own."""
    found: dict[str, int] = {}
    used: dict[str, int] = {}
    folders = {entry.place: entry.folder for entry in trace.entries}
    for caller in (entry.caller for entry in trace.entries):
        if caller is not None and caller not in found:
            found[caller] = used.get(folders[caller], 0) % LANES
            used[folders[caller]] = found[caller] + 1
    return found


def _box(trace: Trace, number: int) -> str:
    """Return the text of a box: number, file, and how often control came there, if more than once."""
    entry = trace.entries[number - 1]
    times = trace.arrivals[entry.place]
    return f"{number} {entry.name}" + (f" \N{MULTIPLICATION SIGN}{times}" if times > 1 else "")


def _width(trace: Trace, number: int) -> float:
    return round(10 + LETTER * len(_box(trace, number)), 1)


def _arrow(start: tuple[int, int], end: tuple[int, int], lane: int, width: float) -> str:
    """Lead from the left of the caller's box along its folder's gutter to the row of what it calls."""
    x = start[0] + 2 + 4 * lane
    middle = end[1] + BOX // 2
    target = end[0] + GUTTER if end[0] >= start[0] else round(end[0] + GUTTER + width, 1)
    return f'<path class="l" d="M{start[0] + GUTTER} {start[1] + BOX - 4}H{x}V{middle}H{target:g}"/>'

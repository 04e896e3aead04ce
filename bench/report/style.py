"""The style of all figures: colours for the colour-blind, shapes for black-and-white print, reproducible bytes.

A strategy keeps its colour, marker and line in every figure. A figure is drawn in light colours; its SVG exchanges them
for readers of dark pages. The hues are those of M. Okabe and K. Ito (2008); both schemes are lighter or darker than
theirs where a line would have a contrast below 3:1 to its background.

A mark is a point, a bar or a cross that stands for a cell. Its figure gives it a name by `set_gid`: one of `MARKS`, a
colon, and what a reader is to see who points at it. In the SVG it is a group of the class "mark" with that `<title>`,
which browsers show as a tooltip. Other groups have no id, since nothing refers to them.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatter, NullLocator

from segmented.models.ids import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    Dashes = Literal["-", "--", "-.", ":"] | tuple[float, tuple[float, ...]]
    """A line's style."""

BLACK, ORANGE, SKY, GREEN = "#1a1a1a", "#b87800", "#2e8bc0", "#008f68"
BLUE, RED, PURPLE = "#0072b2", "#b84700", "#bc5f93"
GREY: Final = "#767676"
PAPER: Final = "#ffffff"
LIGHT: Final = "#ebebeb"
"""Marks a region behind points and lines."""
GRID: Final = "#e4e4e4"

_STEPS: Final = 16
_MIDDLE: Final = 0.53
"""The grey of cividis that can be read on both papers: dark colours begin below it, light ones above."""


def _ramp() -> tuple[tuple[str, str], ...]:
    palette = mpl.colormaps["cividis"]
    shares = [one / (_STEPS - 1) for one in range(_STEPS)]
    places = [(_MIDDLE * (1 - share), _MIDDLE + (1 - _MIDDLE) * share) for share in shares]
    return tuple((mpl.colors.to_hex(palette(light)), mpl.colors.to_hex(palette(dark))) for light, dark in places)


RAMP: Final = _ramp()
"""For increasing values, each farther from the paper than the one before: on light paper, and on dark."""

DARK: Final[dict[str, str]] = {
    BLACK: "#e8e8e8",
    ORANGE: "#e69f00",
    SKY: "#a6dcff",
    GREEN: "#14b789",
    BLUE: "#3d9ad6",
    RED: "#f0752f",
    PURPLE: "#d88bb8",
    GREY: "#a0a0a0",
    PAPER: "#16181a",
    LIGHT: "#2c3033",
    GRID: "#2b2e31",
    **dict(RAMP),
}
"""Each colour of a figure, and its counterpart on a dark page."""


def dark_style(svg: str) -> str:
    """Return the CSS that exchanges the colours of an SVG for readers of dark pages, on a screen only."""
    rules = [
        f'[style*="{what}: {light}"],[{what}="{light}"]{{{what}:{dark}!important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
        if f"{what}: {light}" in svg or f'{what}="{light}"' in svg
    ]
    return f"@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}"


POINT, HOLLOW, VOID = "point", "hollow", "void"
MARKS: Final = (POINT, HOLLOW, VOID)
NAMESPACE: Final = "http://www.w3.org/2000/svg"
NO_METADATA: Final = dict.fromkeys(("Date", "Creator", "Format", "Type"))
NOT_IN_XML: Final = dict.fromkeys((0xFFFE, 0xFFFF), "\N{REPLACEMENT CHARACTER}")
ET.register_namespace("", NAMESPACE)
ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
WIDTH: Final = 7.4
"""Inches: the width of a printed page."""
DOTS_PER_INCH: Final = 160
SETTINGS: Final = Path(__file__).with_name("house.mplstyle")


@dataclass(frozen=True, slots=True)
class Look:
    """How a strategy is drawn, everywhere."""

    colour: str
    marker: str
    line: Dashes


LINES: Final[tuple[Dashes, ...]] = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
COLOURS: Final = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, BLACK)
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "<", ">", "h", "p", "*")
FIXED: Final = {
    "segment-locks": Look(BLUE, "o", "-"),
    "global-lock": Look(RED, "s", (0, (5, 1.5))),
    "lock-free": Look(GREEN, "^", (0, (3, 1, 1, 1))),
    "no-lock": Look(GREY, "*", (0, (1, 1))),
}


def looks(strategies: Sequence[str]) -> dict[str, Look]:
    """Return the look of each strategy; those without a fixed look get one by their alphabetical position."""
    others = sorted(set(strategies) - set(FIXED))
    found = {
        name: Look(COLOURS[(place + 3) % 7], MARKERS[(place + 3) % 11], LINES[(place + 1) % 4])
        for place, name in enumerate(others)
    }
    return {**FIXED, **found}


def ramp(count: int) -> list[Look]:
    """Return looks for increasing values, such as K: colours farther from the paper, other markers and lines."""
    if count == 1:
        return [FIXED["segment-locks"]]
    places = [round(one * (len(RAMP) - 1) / max(1, count - 1)) for one in range(count)]
    return [Look(RAMP[place][0], MARKERS[one % 11], LINES[one % 4]) for one, place in enumerate(places)]


@contextmanager
def house_style() -> Iterator[None]:
    """Draw with this module's settings, whatever the caller's are."""
    with mpl.rc_context():
        mpl.rc_file(SETTINGS)
        yield


def new_figure(title: str, *, height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure with its title."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def plain(value: float, _: object = None) -> str:
    """Format a number for readers: 20,000 or 0.5."""
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:g}"  # noqa: PLR2004  # from here on digits say nothing


class PlainLog(LogFormatter):
    """Labels at matplotlib's positions of a log axis, as plain numbers."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a tick, or nothing."""
        return f"{x:,.6g}" if super().__call__(x, pos) else ""


def log_axis(axes: Axes, which: str, label: str, *, base: int = 10, ticks: Sequence[float] = ()) -> None:
    """Make an axis logarithmic, and note it in its label; `ticks` are the measured values."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=base)
    (axes.set_xlabel if which == "x" else axes.set_ylabel)(f"{label}, log scale")
    axis.set_major_formatter(FuncFormatter(plain) if ticks else PlainLog(base))
    axis.set_minor_formatter(PlainLog(base))
    if not axis.get_view_interval()[1] > 0:
        axis.set_view_interval(1, 10, ignore=True)  # nothing is drawn, or only crosses
    if ticks:
        axis.set_ticks(sorted(set(ticks)))
        axis.set_minor_locator(NullLocator())


def from_zero(axes: Axes, label: str) -> None:
    """Make y linear from 0, with its label."""
    axes.set_ylim(bottom=0)
    axes.set_ylabel(label)
    axes.yaxis.set_major_formatter(FuncFormatter(plain))


def legend_below(
    figure: Figure, panels: Iterable[Axes], *, ncols: int = 1, first: Mapping[str, Artist] | None = None
) -> None:
    """Write one legend below the panels: what is `first`, then every label of a panel, once."""
    found = dict(first or {})
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=ncols)


def as_png(figure: Figure) -> bytes:
    """Return the figure as PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()


def as_svg(figure: Figure, name: str) -> str:
    """Return the figure as SVG; the same figure gives the same bytes, and other names other ids."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata=NO_METADATA)
    drawn = visible(buffer.getvalue()).translate(NOT_IN_XML)
    root = ET.fromstring(drawn)  # noqa: S314  # matplotlib wrote it
    for group in root.iter(f"{{{NAMESPACE}}}g"):
        kind, _, said = group.attrib.pop("id", "").partition(":")
        if said and kind in MARKS:
            group.set("class", "mark")
            title = ET.Element(f"{{{NAMESPACE}}}title")
            title.text = said
            group.insert(0, title)
    style = ET.Element(f"{{{NAMESPACE}}}style")
    style.text = dark_style(drawn)
    root.insert(0, style)
    return f"{ET.tostring(root, encoding='unicode')}\n"


def inlined(svg: str, title: str) -> str:
    """Return an SVG for embedding in HTML: with flexible width, and a name."""
    head, _, rest = svg.partition(">")
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label={quoteattr(title)}>{rest}'

"""The style of all figures: colours for the colour-blind, shapes for black-and-white print, reproducible bytes.

A strategy keeps its colour, marker and line in every figure. No state is shared with pyplot: a figure is an object that
goes away with its name.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatter, NullLocator

from bench.report.colours import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    GRID,
    ORANGE,
    PAPER,
    PURPLE,
    RAMP,
    RED,
    REMARK,
    SKY,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    Dashes = Literal["-", "--", "-.", ":"] | tuple[float, tuple[float, ...]]
    """A line's style."""

WIDTH: Final = 7.4
"""Inches: the width of a printed page."""
DOTS_PER_INCH: Final = 160

SETTINGS: Final[dict[str, Any]] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.edgecolor": BLACK,
    "axes.labelcolor": BLACK,
    "axes.prop_cycle": f"cycler('color', ['{BLACK}'])",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 5.5,
    "text.color": BLACK,
    "xtick.color": BLACK,
    "ytick.color": BLACK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "figure.titlesize": 10.0,
    "figure.titleweight": "bold",
    "hatch.linewidth": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "segmented",
    "path.simplify": True,
}


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
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)  # type: ignore[arg-type]  # the names are matplotlib's settings
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


def note(axes: Axes, text: str) -> None:
    """Write a remark into a corner, on top of the drawing."""
    axes.annotate(
        text,
        (0.99, 0.02),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
        fontsize=7.5,
        color=REMARK,
        bbox={"facecolor": PAPER, "alpha": 0.8, "edgecolor": "none", "pad": 1.5},
    )


def as_png(figure: Figure) -> bytes:
    """Return the figure as PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()

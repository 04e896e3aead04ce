"""Points with their intervals: filled, hollow if something was saturated, or a cross if void."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.report.facts import with_ends
from bench.report.style import BLACK, GREY, HOLLOW, PAPER, POINT, VOID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.transforms import Transform

    from bench.report.facts import Ends, Spot
    from bench.report.style import Look

    Value = Callable[[Spot], float]
    Bounds = Callable[[Spot], Ends | None]
    At = tuple[float, float]

LEGEND: Final = (
    "Hollow: generator, server or machine saturated. Cross: void runs, which have no value. Bars: 95 % over runs."
)

BAR_OPACITY: Final = 0.35
"""A bar is this opaque within its edge, so that the interval is seen on it."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A value of a cell that a figure shows, its interval, and its unit."""

    value: Value
    bounds: Bounds
    unit: str


RATE: Final = Measure(lambda spot: spot.mean, lambda spot: spot.interval, "orders/s")


def plot(axes: Axes, spots: Sequence[Spot], look: Look, *, x: Value, label: str, y: Measure = RATE) -> None:
    """Draw the points of one strategy, void ones as crosses at the bottom."""
    told = [spot for spot in spots if not spot.is_void]
    at = [x(spot) for spot in told]
    values = [y.value(spot) for spot in told]
    line = look.line if len(told) > 1 else "none"
    axes.plot(at, values, color=look.colour, linestyle=line, label="_line")
    for spot, place, value in zip(told, at, values, strict=True):
        found = y.bounds(spot)
        axes.errorbar(
            [place], [value], yerr=reach(value, found), fmt="none", ecolor=look.colour, elinewidth=1.1, capsize=2.5
        )
        said = f"{with_ends(value, found)} {y.unit}"
        point(axes, (place, value), spot, said, colour=look.colour, marker=look.marker)
    crosses(axes, [spot for spot in spots if spot.has_void], x=x, colour=look.colour)
    axes.plot([], [], color=look.colour, linestyle=line, marker=look.marker, label=label)


def reach(value: float, found: Ends | None) -> list[list[float]]:
    """Return how far an interval reaches below and above its value, as matplotlib wants it."""
    low, high = found or (value, value)
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


def whisker(
    axes: Axes,
    at: At,
    found: Ends | None,
    named: str,
    *,
    colour: str,
    marker: str,
    is_hollow: bool,
    capsize: float = 2.5,
) -> None:
    """Draw a value and its interval on a row of its own; `named` is the gid of its mark."""
    face = PAPER if is_hollow else colour
    reached = reach(at[0], found)
    drawn = axes.errorbar(
        [at[0]], [at[1]], xerr=reached, fmt=marker, color=colour, markerfacecolor=face, capsize=capsize
    )
    drawn.lines[0].set_gid(named)


def across_bar(
    axes: Axes, at: At, found: Ends | None, named: str, *, colour: str, height: float, hatch: str | None
) -> BarContainer:
    """Draw a bar and its interval on a row of its own, hatched on paper or filled; `named` is the gid of its mark."""
    drawn = axes.barh(
        at[1],
        at[0],
        height=height,
        color=PAPER if hatch else (colour, BAR_OPACITY),
        edgecolor=colour,
        hatch=hatch,
        xerr=reach(at[0], found),
        error_kw={"ecolor": BLACK, "elinewidth": 0.9, "capsize": 2},
    )
    drawn.patches[0].set_gid(named)
    return drawn


def point(
    axes: Axes, at: At, spot: Spot, said: str, *, colour: str, marker: str, transform: Transform | None = None
) -> None:
    """Draw one mark of a cell and name it; hollow if something was saturated. `transform` is of data if not given."""
    (mark,) = axes.plot(
        [at[0]],
        [at[1]],
        marker=marker,
        linestyle="none",
        color=colour,
        markerfacecolor=PAPER if spot.saturated else colour,
        markeredgewidth=1.2,
        transform=transform or axes.transData,
        zorder=3,
    )
    mark.set_gid(gid(spot, said))


def gid(spot: Spot, said: str) -> str:
    """Return the gid of a cell's mark that has a value; see `bench.report.style`."""
    return f"{HOLLOW if spot.saturated else POINT}:{spot.named(said)}"


def void_gid(spot: Spot) -> str:
    """Return the gid of a cross."""
    return f"{VOID}:{spot.named('void runs have no value')}"


def crosses(axes: Axes, spots: Sequence[Spot], *, x: Value, colour: str) -> None:
    """Draw cells with void runs at the bottom of the axes, where no value can be read."""
    for spot in spots:
        (mark,) = axes.plot(
            [x(spot)],
            [0.025],
            transform=axes.get_xaxis_transform(),
            marker="x",
            markersize=7,
            markeredgewidth=1.8,
            color=colour,
            linestyle="none",
            clip_on=False,
            zorder=4,
        )
        mark.set_gid(void_gid(spot))


def model_line(axes: Axes, x: Sequence[float], y: Sequence[float], label: str, *, style: str = "--") -> None:
    """Draw the line of a model: black or grey, without markers."""
    axes.plot(x, y, color=GREY if style == ":" else BLACK, linestyle=style, linewidth=1.0, label=label, zorder=1.5)

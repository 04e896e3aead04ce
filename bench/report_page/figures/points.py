"""Points with their intervals: filled, hollow if something was saturated, or a cross if void."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.report_page.style import BLACK, GREY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from bench.report_page.facts import Spot
    from bench.report_page.style import Look

    Value = Callable[[Spot], float]
    Bounds = Callable[[Spot], tuple[float, float] | None]

HOLLOW_GID: Final = "hollow"
VOID_GID: Final = "void"
LEGEND: Final = (
    "Hollow: generator, server or machine saturated. Cross: void runs, which have no value. Bars: 95 % over runs."
)


def rate(spot: Spot) -> float:
    """Return orders per second."""
    return spot.mean


def rate_interval(spot: Spot) -> tuple[float, float] | None:
    """Return its interval."""
    return spot.interval


def plot(
    axes: Axes,
    spots: Sequence[Spot],
    look: Look,
    *,
    x: Value,
    label: str,
    y: Value = rate,
    bounds: Bounds = rate_interval,
    joined: bool = True,
) -> None:
    """Draw the points of one strategy, void ones as crosses at the bottom."""
    told = [spot for spot in spots if not spot.is_void]
    at = [x(spot) for spot in told]
    values = [y(spot) for spot in told]
    line = look.line if joined and len(told) > 1 else "none"
    axes.plot(at, values, color=look.colour, linestyle=line, label="_line")
    for spot, place, value in zip(told, at, values, strict=True):
        found = bounds(spot) or (value, value)
        axes.errorbar(
            [place],
            [value],
            yerr=[[max(0.0, value - found[0])], [max(0.0, found[1] - value)]],
            fmt="none",
            ecolor=look.colour,
            elinewidth=1.1,
            capsize=2.5,
        )
        (mark,) = axes.plot(
            [place],
            [value],
            marker=look.marker,
            linestyle="none",
            color=look.colour,
            markerfacecolor="white" if spot.is_hollow else look.colour,
            markeredgewidth=1.2,
            zorder=3,
        )
        mark.set_gid(f"{HOLLOW_GID if spot.is_hollow else 'point'}:{spot.cell.cell_id}")
    crosses(axes, [spot for spot in spots if spot.has_void], x=x, colour=look.colour)
    axes.plot([], [], color=look.colour, linestyle=line, marker=look.marker, label=label)


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
        mark.set_gid(f"{VOID_GID}:{spot.cell.cell_id}")


def model_line(axes: Axes, x: Sequence[float], y: Sequence[float], label: str, *, style: str = "--") -> None:
    """Draw the line of a model: black or grey, without markers."""
    axes.plot(x, y, color=GREY if style == ":" else BLACK, linestyle=style, linewidth=1.0, label=label, zorder=1.5)

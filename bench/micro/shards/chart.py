"""The chart of throughput by masters, light or dark, and the tables of its page, from a results file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any, Final

from bench.micro.shards.measure import MODELLED, name_of
from bench.readme_chart import FONT, WIDTH, text_at
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.readme_chart import Palette

LEFT: Final = 64
RIGHT: Final = 640
TOP: Final = 70
BOTTOM: Final = 330
HEIGHT: Final = 372
GRID: Final = 10_000
"""Orders per second between two lines."""
DASHES: Final = {100: "2 4", 300: "7 4", 1_000: ""}
COLUMNS: Final = {
    "server CPU an order": "server CPU an order, us",
    "CPU of the most loaded one an order": "of the most loaded master, us",
    "client CPU an order": "client CPU an order, us",
    "commands an order, until 90 % is sold": "commands an order",
    "messages to other masters an order, until 90 % is sold": "messages to other masters",
    "transfers an order, until 90 % is sold": "transfers an order",
    "commands for other shards an order, of the last 10 %": "commands for other shards, of the last 10 %",
    "transfers an order, of the last 10 %": "transfers an order, of the last 10 %",
}
"""Figures of the table of costs, and the heads of their columns."""
Figures = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Results:
    """The content of a results file."""

    figures: Figures
    """By name."""
    rounds: int
    cores: int
    """Number of cores of the machine that measured."""
    others: float
    """Cores that other programs used meanwhile."""


def read_results(file: Path) -> Results:
    """Return what a results file has. Raises InvalidInput."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["benchmark"] != "shards":
            message = f"{file} has results of {found['benchmark']!r}; give a file of `segmented bench shards --json`"
            raise InvalidInput(message)
        figures = {figure["name"]: figure for figure in found["figures"]}
        sales = figures["1 master: server CPU an order"]["detail"]["orders until 90 %"]
        others = figures["cores that others used meanwhile"]["value"]
        return Results(figures, len(sales), found["conditions"]["cores"], others)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InvalidInput):
            raise
        message = f"{file} cannot be read as results of `segmented bench shards --json`: {error}"
        raise InvalidInput(message) from error


def curves_of(figures: Figures) -> dict[int, list[tuple[int, float]]]:
    """Return masters and orders per second of each curve, by workers."""
    found: dict[int, list[tuple[int, float]]] = {}
    for figure in figures.values():
        if "curve" in figure["detail"]:
            found.setdefault(figure["detail"]["curve"], []).append((figure["detail"]["masters"], figure["value"]))
    return found


def chart(figures: Figures, palette: Palette) -> str:
    """Return the chart as SVG: modelled orders per second by masters, a line for each number of workers."""
    curves = curves_of(figures)
    most = max(rate for points in curves.values() for _, rate in points)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}" font-size="13"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{alt(figures)}">',
        text_at(
            0, 20, "More masters sell more until the workers are the limit", _look(palette.text, size=16, weight=600)
        ),
        text_at(0, 41, "Modelled orders/s by masters: one core each, hold 20 ms", _look(palette.faint)),
        *_axes(palette, [masters for masters, _ in next(iter(curves.values()))], most),
    ]
    for workers, points in curves.items():
        colour = palette.best if workers == max(curves) else palette.text
        spots = [(_x(masters), _y(rate, most)) for masters, rate in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        dashes = f' stroke-dasharray="{DASHES[workers]}"' if DASHES.get(workers) else ""
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots]
        lines.append(text_at(RIGHT + 10, spots[-1][1] + 4, f"{workers:,} workers", _look(colour)))
    return "\n".join([*lines, "</svg>", ""])


def _axes(palette: Palette, masters: list[int], most: float) -> Iterator[str]:
    for rate in range(0, int(most) + 1, GRID):
        y = _y(rate, most)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="{palette.bar}" stroke-width="0.5"/>'
        yield text_at(LEFT - 8, y + 4, f"{rate:,}", _look(palette.faint, anchor="end"))
    for count in masters:
        yield text_at(_x(count), BOTTOM + 20, f"{count}", _look(palette.faint, anchor="middle"))
    yield text_at((LEFT + RIGHT) / 2, BOTTOM + 38, "masters", _look(palette.faint, anchor="middle"))


def _x(masters: int) -> float:
    return LEFT + (RIGHT - LEFT) * log2(masters) / log2(MODELLED[-1])


def _y(rate: float, most: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * rate / most


def _look(colour: str, *, size: int = 13, weight: int = 400, anchor: str = "start") -> str:
    return f'fill="{colour}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'


def alt(figures: Figures) -> str:
    """Return a one-sentence description of the chart."""
    curves = curves_of(figures)
    ends = "; ".join(
        f"{workers:,} workers: {points[0][1]:,.0f} with 1 master, {points[-1][1]:,.0f} with {points[-1][0]}"
        for workers, points in curves.items()
    )
    return f"Modelled orders a second, {ends}"


def costs_table(figures: Figures) -> str:
    """Return the table of an order's costs by masters."""
    counts = [figure["detail"]["masters"] for name, figure in figures.items() if name.endswith(": server CPU an order")]
    heads = ("masters", *COLUMNS.values())
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['--:'] * len(heads))} |"]
    for masters in counts:
        found = [figures[f"{name_of(masters)}: {what}"] for what in COLUMNS]
        cells = [_with_interval(one) if one["unit"] else f"{one['value']:.3g}" for one in found]
        lines.append(f"| {masters} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def cells_table(figures: Figures) -> str:
    """Return the table of the held-out cells: measured, and what the model says."""
    lines = [
        "| cell | measured, orders/s | model / measured [95 %] |",
        "| --- | --: | --: |",
    ]
    for name, figure in figures.items():
        _, mark, cell = name.partition("predicted / measured: ")
        if mark:
            measured, ratio = figure["detail"]["measured, orders/s"], _with_interval(figure, ".2f")
            lines.append(f"| {cell} | {measured:,.1f} | {ratio} |")
    return "\n".join([*lines, ""])


def _with_interval(figure: dict[str, Any], form: str = ",.0f") -> str:
    value, low, high = (figure[key] for key in ("value", "low", "high"))
    return f"{value:{form}}" if low is None else f"{value:{form}} [{low:{form}}, {high:{form}}]"

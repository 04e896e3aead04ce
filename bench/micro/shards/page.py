"""Draws the chart of the page about shards and writes its tables: every number in them is a result's.

`python -m bench.micro.shards.page RESULTS CHART PAGE`: RESULTS is a file that `segmented bench shards --json` wrote.
The chart is written to the file CHART, and the tables of PAGE with the same headings are replaced.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.micro.shards import MODELLED
from bench.report.style import as_svg, from_zero, house_style, log_axis, new_figure, ramp
from segmented.errors import InvalidInput
from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Figures = dict[str, dict[str, Any]]
"""The figures of a results file, by name."""
COSTS: Final = {
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
SHOWN: Final = (1, 4, 16, 64)
"""Masters in the table of the modelled curves."""


def read_figures(file: Path) -> Figures:
    """Return the figures of a results file."""
    return {figure["name"]: figure for figure in json.loads(file.read_text(encoding="utf-8"))["figures"]}


def curves_of(figures: Figures) -> dict[int, dict[int, float]]:
    """Return modelled orders per second by workers and by masters."""
    found: dict[int, dict[int, float]] = {}
    for figure in figures.values():
        if "curve" in figure["detail"]:
            found.setdefault(figure["detail"]["curve"], {})[figure["detail"]["masters"]] = figure["value"]
    return found


def chart(figures: Figures) -> str:
    """Return the chart as SVG: modelled orders per second by masters, a line for each number of workers."""
    curves = curves_of(figures)
    with house_style():
        figure = new_figure("Modelled orders/s by masters: one core each, hold 20 ms", height=3.4)
        axes = figure.subplots()
        for look, (workers, rates) in zip(ramp(len(curves)), curves.items(), strict=True):
            axes.plot(
                list(rates),
                list(rates.values()),
                color=look.colour,
                marker=look.marker,
                linestyle=look.line,
                label=f"{workers:,} workers",
            )
        log_axis(axes, "x", "masters", base=2, ticks=MODELLED)
        from_zero(axes, "orders/s")
        axes.legend()
        return as_svg(figure, "shards")


def tables(figures: Figures) -> list[str]:
    """Return the tables of the page: costs by masters, cells beside the model, and modelled curves."""
    counts = [figure["detail"]["masters"] for name, figure in figures.items() if name.endswith(": server CPU an order")]
    costs = [[count, *(_cost(figures[f"{counted(count, 'master')}: {what}"]) for what in COSTS)] for count in counts]
    cells = [
        [name.removeprefix(_PREDICTED), f"{figure['detail']['measured, orders/s']:,.1f}", _with_interval(figure, ".2f")]
        for name, figure in figures.items()
        if name.startswith(_PREDICTED)
    ]
    curves = [
        [f"{workers:,}", *(f"{rates[masters]:,.0f}" for masters in SHOWN)]
        for workers, rates in curves_of(figures).items()
    ]
    return [
        _table(["masters", *COSTS.values()], costs),
        _table(["cell", "measured, orders/s", "model / measured [95 %]"], cells, first="---"),
        _table(["workers", *(counted(one, "master") for one in SHOWN)], curves),
    ]


_PREDICTED: Final = "predicted / measured: "


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, first: str = "--:") -> str:
    lines = [heads, [first, *["--:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def _cost(figure: dict[str, Any]) -> str:
    return _with_interval(figure, ",.0f") if figure["unit"] else f"{figure['value']:.3g}"


def _with_interval(figure: dict[str, Any], form: str) -> str:
    value, low, high = (figure[key] for key in ("value", "low", "high"))
    return f"{value:{form}}" if low is None else f"{value:{form}} [{low:{form}}, {high:{form}}]"


def with_table(page: str, table: str) -> str:
    """Return the page with this table in place of the one with the same heading. Raises InvalidInput without one."""
    head = table.partition("\n")[0]
    before, found, rest = page.partition(head)
    if not found:
        raise InvalidInput(f"the page has no table with the heading {head}")
    _, _, after = rest.partition("\n\n")
    return f"{before}{table}\n{after}"


def main(results: Path, picture: Path, page: Path) -> None:
    """Draw the chart, and write the tables."""
    figures, text = read_figures(results), page.read_text(encoding="utf-8")
    for table in tables(figures):
        text = with_table(text, table)
    page.write_text(text, encoding="utf-8")
    picture.write_text(chart(figures), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""Draws the charts and writes the section "How it scales" of the page about shards: every number in it is a result's.

`python -m bench.micro.shards.page RESULTS CHARTS PAGE`: RESULTS is a file that `segmented bench shards --json` wrote.
The charts are written to the folder CHARTS, and PAGE gets the section.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.micro.shards.chart import alt, cells_table, chart, costs_table, curves_of, read_results
from bench.micro.shards.measure import BUSY, CROWDS, ERROR_MAX, HOLD_MS, WORKERS_A_CORE, ShardSizes, name_of, work_of
from bench.micro.shards.sale import MICROSECONDS, QUANTITY_MAX, SEGMENTS
from bench.readme_chart import PALETTES
from segmented.advise.prediction import ROUND_TRIP
from segmented.models import SEGMENT_COUNT_MAX
from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.micro.shards.chart import Results

HEADING: Final = "## How it scales\n"
"""The section is the last one of its page."""
COLUMNS: Final = (1, 4, 16, 64)
"""Masters in the table of the modelled curves."""
WIDTH: Final = 132


def section(results: Results) -> str:
    """Return the section, from its heading to the end of the page."""
    return "\n".join([HEADING, *_costs(results), *_cells(results), *_curves(results)])


def write_section(page: Path, results: Results) -> None:
    """Replace the section of the page."""
    before, _, _ = page.read_text(encoding="utf-8").partition(HEADING)
    page.write_text(before + section(results), encoding="utf-8")


def _paragraph(*sentences: str) -> str:
    return textwrap.fill(" ".join(sentences), WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def _costs(results: Results) -> Iterator[str]:
    sizes, work = ShardSizes(), work_of(results.figures)
    one, each = (round(part * MICROSECONDS) for part in (work.one_master, work.each_further))
    cores, others = results.cores, results.others
    once = "The values are of one round (`--rounds 1`), so they have no intervals."
    rounds = once if results.rounds == 1 else f"The values are medians of {results.rounds} rounds."
    used = f"other programs used {others:.2f} of its {counted(cores, 'core')}"
    busy = f"The machine was busy: {used}, which raises CPU times." if others > BUSY * cores else None
    yield _paragraph(
        "`segmented bench shards` [sells a pool](../reference/benchmarks.md#shards) on clusters of "
        f"{sizes.masters[0]} to {sizes.masters[-1]} masters, with a shard of {sizes.stock_each:,} units and {SEGMENTS} "
        f"segments on each. An order wants 1 to {QUANTITY_MAX} units, and is a grant and a confirm.",
        rounds,
        "Where nothing else is said, they are of the time until 90 % of the units were sold.",
        busy or f"The machine was quiet: {used}.",
    )
    yield costs_table(results.figures)
    yield _paragraph(
        "An order has two commands at its home shard, however many masters there are, and sends no message to other "
        "masters. Until 90 % is sold, the promise is at most 0.05 transfers an order. Only in the last 10 % do orders "
        "need other shards, and reading all shards takes a command to each.",
    )
    if each > 0:
        yield _paragraph(
            f"A line through the CPU times of an order is {one} us with one master, and rises by {each} us for each "
            f"further one, probably because all masters share {counted(cores, 'core')} and find their data out of the "
            "caches. Masters with a core of their own were not measured, so the model below keeps these "
            f"{each} us: with them, no number of masters could do more than about {MICROSECONDS / each:,.0f} orders/s.",
        )


def _cells(results: Results) -> Iterator[str]:
    figures = results.figures
    model = figures["largest error of a held-out cell"]["value"]
    used = max(figure["detail"].get("cores used", 0) for figure in figures.values())
    yield "### A model of the throughput\n"
    yield _paragraph(
        "[A queueing model](models-of-locks.md#a-pool-in-shards) predicts the throughput from the CPU times above, and "
        "from the other times of an order of a lone worker and of one segment with four workers. It was compared with "
        "cells that it had not seen. In each, the workers hold a segment while they sleep, so the cores are not the "
        f"limit: the cells used {used:.2f} cores at most.",
    )
    yield cells_table(figures)
    kept = "kept" if model <= ERROR_MAX else "not kept"
    yield _paragraph(
        f"The model's largest error is {100 * model:.1f} %, so the bound of {100 * ERROR_MAX:.0f} % is {kept}.",
        "Each order of a cell has a random id: ids that differ in one digit are spread over 2, 4 or 8 shards more "
        "evenly than chance does, so orders of a real sale that are numbered wait less than this page says.",
    )


def _curves(results: Results) -> Iterator[str]:
    work, curves = work_of(results.figures), curves_of(results.figures)
    client, one, each = (round(part * MICROSECONDS) for part in (work.client, work.one_master, work.each_further))
    yield "\n".join(
        [
            "<picture>",
            '  <source media="(prefers-color-scheme: dark)" srcset="../charts/shards-dark.svg">',
            f'  <img src="../charts/shards-light.svg" alt="{alt(results.figures)}">',
            "</picture>",
            "",
        ]
    )
    yield _paragraph(
        "The chart has the model's answer for machines that were not measured: one core for each master and for each "
        f"{WORKERS_A_CORE} workers, a hold of {HOLD_MS} ms, {SEGMENT_COUNT_MAX:,} segments over all shards, {client} "
        f"us of client CPU and {one} us of server CPU an order, {each} us more for each further master, and a round "
        f"trip of {ROUND_TRIP * 1_000:g} ms. In orders per second:",
    )
    lines = [
        f"| workers | {' | '.join(name_of(masters) for masters in COLUMNS)} |",
        f"| {' | '.join(['--:'] * (1 + len(COLUMNS)))} |",
    ]
    for workers, points in curves.items():
        rates = dict(points)
        lines.append(f"| {workers:,} | {' | '.join(f'{rates[masters]:,.0f}' for masters in COLUMNS)} |")
    yield "\n".join([*lines, ""])
    because = f", because of the {each} us" if each > 0 else ""
    yield _paragraph(
        f"With {min(CROWDS):,} workers a few masters are enough, and the workers are the limit. With {max(CROWDS):,} "
        f"workers each further master adds less than the one before{because}.",
    )
    yield _paragraph(
        "Not shown: the network between machines, whose round trip is an assumption; saturated masters or clients, "
        "which only [a simulation](models-of-locks.md#a-pool-in-shards) has checked; more than "
        f"{ShardSizes().masters[-1]} masters, for which the line is extended; an order database; customers spread "
        "unevenly over the shards; and the last 10 % of a sale, in which transfers cost commands too.",
    )


if __name__ == "__main__":
    found, charts = read_results(Path(sys.argv[1])), Path(sys.argv[2])
    for name, palette in PALETTES.items():
        (charts / f"shards-{name}.svg").write_text(chart(found.figures, palette), encoding="utf-8")
    write_section(Path(sys.argv[3]), found)

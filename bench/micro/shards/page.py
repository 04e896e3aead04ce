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
PAGE_TESTS: Final = "tests/quick/bench/test_shards_page.py::"
TEST: Final = f"{PAGE_TESTS}test_the_page_is_what_the_kept_results_render_to"
DRAWN: Final = f"{PAGE_TESTS}test_each_chart_of_the_shards_is_drawn_again_exactly_from_the_results"
SIZES: Final = (
    "bench/micro/shards/measure.py::ShardSizes.masters, bench/micro/shards/measure.py::ShardSizes.stock_each",
    "bench/micro/shards/sale.py::SEGMENTS, bench/micro/shards/sale.py::QUANTITY_MAX",
    "bench/micro/stock/shards.py::EARLY",
)
MODELLED_BY: Final = (
    "bench/micro/shards/measure.py::WORKERS_A_CORE, bench/micro/shards/measure.py::HOLD_MS",
    "segmented/advise/prediction.py::ROUND_TRIP",
)
SHOWN: Final = f"<!-- shown: {TEST} -->"
COUNTS: Final = (
    "tests/real/bench/integration/test_shards.py::test_an_order_is_two_commands_at_home_until_shards_run_empty"
)
MESSAGES: Final = (
    "tests/real/integration/test_deployments_slots.py::"
    "test_a_release_sends_one_message_to_its_replica_and_none_to_other_masters"
)
RANDOM: Final = "tests/quick/bench/test_shards_figures.py::test_orders_of_a_cell_are_at_home_in_random_shards"


def section(results: Results) -> str:
    """Return the section, from its heading to the end of the page."""
    return "\n".join([HEADING, *_costs(results), *_cells(results), *_curves(results)])


def write_section(page: Path, results: Results) -> None:
    """Replace the section of the page."""
    before, _, _ = page.read_text(encoding="utf-8").partition(HEADING)
    page.write_text(before + section(results), encoding="utf-8")


def _paragraph(*sentences: str, marks: tuple[str, ...] = (SHOWN,)) -> str:
    filled = textwrap.fill(" ".join(sentences), WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join([filled, *marks, ""])


def _shown(*targets: str) -> tuple[str, ...]:
    return tuple(f"<!-- shown: {target} -->" for target in targets)


def _set(*targets: str) -> tuple[str, ...]:
    return tuple(f"<!-- set: {target} -->" for target in targets)


def _costs(results: Results) -> Iterator[str]:
    sizes, work = ShardSizes(), work_of(results.figures)
    one, each = (round(part * MICROSECONDS) for part in (work.one_master, work.each_further))
    cores, others = results.cores, results.others
    once = "The values are of one round (`--rounds 1`), so they have no intervals."
    rounds = once if results.rounds == 1 else f"The values are medians of {results.rounds} rounds."
    yield _paragraph(
        "`segmented bench shards` [sells a pool](../reference/benchmarks.md#shards) on clusters of "
        f"{sizes.masters[0]} to {sizes.masters[-1]} masters, with a shard of {sizes.stock_each:,} units and {SEGMENTS} "
        f"segments on each. An order wants 1 to {QUANTITY_MAX} units, and is a grant and a confirm. Two cores cannot "
        "show the throughput of eight masters, but CPU time and commands of an order can be measured there.",
        rounds,
        "Where nothing else is said, they are of the time until 90 % of the units were sold.",
        marks=(SHOWN, *_set(*SIZES)),
    )
    yield f"{costs_table(results.figures)}{SHOWN}\n"
    yield _paragraph(
        "An order has two commands at its home shard, however many masters there are. Until 90 % is sold, the promise "
        "is at most 0.05 transfers an order. Only in the last 10 % do orders need other shards, and reading all shards "
        "takes a command to each.",
        marks=_shown(COUNTS),
    )
    yield _paragraph(
        "An order sends no message to other masters either. Its confirm publishes that the segment is free, with "
        "`SPUBLISH`: the message goes to the home shard's master and its replicas only. Before, it was a `PUBLISH`, "
        "which a cluster sends to all masters.",
        marks=_shown(COUNTS, MESSAGES),
    )
    if each > 0:
        yield _paragraph(
            f"A line through the CPU times of an order, by least squares, is {one} us with one master, and rises by "
            f"{each} us for each further one. A likely cause, which was not measured apart, is that all masters "
            f"share {counted(cores, 'core')}: one caller sends an order to one master after the other, so each has "
            "slept and finds its data out of the cores' caches. Masters with a core of their own were not there to be "
            f"measured, so the model below keeps these {each} us: with them, no number of masters could do more than "
            f"about {MICROSECONDS / each:,.0f} orders/s.",
        )
    used = f"other programs used {others:.2f} of its {counted(cores, 'core')}"
    if others > BUSY * cores:
        yield _paragraph(
            f"The machine was busy: {used}. CPU times are higher then than on a quiet machine, and differ more."
        )
    else:
        yield _paragraph(f"The machine was quiet: {used}.")


def _cells(results: Results) -> Iterator[str]:
    figures = results.figures
    model = figures["largest error of a held-out cell"]["value"]
    used = max(figure["detail"].get("cores used", 0) for figure in figures.values())
    yield "### A model of the throughput\n"
    yield _paragraph(
        "[A queueing model](models-of-locks.md#a-pool-in-shards) predicts the throughput from parts that were measured "
        "apart. The CPU times of an order are from the sales above. The times of an order that are not CPU time are "
        "from a lone worker and from one segment with four workers. The model was then compared with cells that it had "
        "not seen, with other holds, segments and workers. In each, the workers hold a segment while they sleep, so "
        f"the cores are not the limit: the cells used {used:.2f} cores at most.",
    )
    yield f"{cells_table(figures)}{SHOWN}\n"
    kept = "kept" if model <= ERROR_MAX else "not kept"
    bound = f"so the bound of {100 * ERROR_MAX:.0f} % is {kept}"
    yield _paragraph(f"The model's largest error is {100 * model:.1f} %, {bound}.")
    yield _paragraph(
        "Each order of a cell has a random id. Numbered ids would not do: an order's home is the CRC-32 of its id "
        "modulo the number of shards, and for 2, 4 or 8 shards that spreads ids that differ in one digit more evenly "
        "than chance does. Eight such ids have 8 different homes of 8, and eight random ones have 5.25 on average. An "
        "earlier round had numbered ids, so cells on 2, 4 and 8 masters sold more than predicted. Orders of a real "
        "sale that are numbered wait less than this page says, too.",
        marks=_shown(RANDOM),
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
            SHOWN,
            "",
        ]
    )
    yield _paragraph(
        "The chart has the model's answer for machines that were not measured: one core for each master and for each "
        f"{WORKERS_A_CORE} workers, a hold of {HOLD_MS} ms, {SEGMENT_COUNT_MAX:,} segments over all shards, {client} "
        f"us of client CPU and {one} us of server CPU an order, {each} us more for each further master, and a round "
        f"trip of {ROUND_TRIP * 1_000:g} ms. In orders per second:",
        marks=(*_shown(DRAWN), *_set(*MODELLED_BY)),
    )
    lines = [
        f"| workers | {' | '.join(name_of(masters) for masters in COLUMNS)} |",
        f"| {' | '.join(['--:'] * (1 + len(COLUMNS)))} |",
    ]
    for workers, points in curves.items():
        rates = dict(points)
        lines.append(f"| {workers:,} | {' | '.join(f'{rates[masters]:,.0f}' for masters in COLUMNS)} |")
    yield "\n".join([*lines, SHOWN, ""])
    because = f", because of the {each} us" if each > 0 else ""
    yield _paragraph(
        f"With {min(CROWDS):,} workers a few masters are enough, and the workers are the limit. With {max(CROWDS):,} "
        f"workers each further master adds less than the one before{because}.",
    )
    yield _paragraph(
        "These figures do not show the network between machines, whose round trip is an assumption; masters or "
        "clients whose cores are saturated, which only [a simulation](models-of-locks.md#a-pool-in-shards) has "
        f"checked; more than {ShardSizes().masters[-1]} masters, for which the line is extended; an order database; "
        "customers spread unevenly over the shards; and the last 10 % of a sale, in which transfers cost "
        "commands too.",
    )


if __name__ == "__main__":
    found, charts = read_results(Path(sys.argv[1])), Path(sys.argv[2])
    for name, palette in PALETTES.items():
        (charts / f"shards-{name}.svg").write_text(chart(found.figures, palette), encoding="utf-8")
    write_section(Path(sys.argv[3]), found)

"""The tables: rates with guarantees, all cells, void runs, the settings of the machine; and pages from templates.

The page of two sessions side by side is one HTML file: nothing is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from bench.analysis.intervals import number
from bench.analysis.measured import mean_server_seconds, price, without_redis
from bench.engine.percentiles import CAP_MS
from bench.report.facts import Spot, families, said, segment_families, with_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bench.analysis.compare import Comparison
    from bench.engine.record import Run
    from bench.report.facts import Facts, Family

WHOLE: Final = 100.0
YES_OR_NO: Final = {"True": "yes", "False": "no"}
GUARANTEES: Final = (
    ("never_oversells", "never oversells"),
    ("sold_out_is_exact", "sold out is exact"),
    ("one_effect_per_order", "one effect an order"),
    ("section", "in the slow step"),
    ("fencing", "fencing"),
    ("durable", "an order is in"),
)
TEMPLATES: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell as a row of a table; all values are text, with units in the heading."""

    strategy: str
    segments: int
    where: str
    loop: str
    runs: str
    rate: str
    sold_out: str
    failed: str
    sold_share: str
    p50: str
    p99: str
    attempts: str
    commands: str
    server_us: str
    server_s: str
    """CPU seconds of all servers for a million orders."""
    price: str
    """Their price, by the reader's price of a core-hour; a dash without one."""
    cores: str
    used_up: str
    guarantees: tuple[str, ...]
    is_void: bool
    is_control: bool


def cell_row(spot: Spot, core_hour: float | None = None) -> CellRow:
    """Return the row of a cell. Void cells have no rate."""
    cell, first = spot.cell, spot.first
    seconds = mean_server_seconds(spot.runs)
    times = spot.percentiles("service" if cell.loop == "closed" else "response")
    return CellRow(
        strategy=cell.strategy,
        segments=cell.segments,
        where=said(cell, without=("segments",)),
        loop=cell.loop,
        runs=spot.runs_said,
        rate="void" if spot.is_void else with_interval(spot),
        sold_out=number(spot.mean_of(lambda run: run.sold_out_per_s)),
        failed=number(spot.mean_of(lambda run: run.failed_per_s)),
        sold_share=sold_share(spot.runs),
        p50=_latency(None if times is None else times.p50),
        p99=_latency(None if times is None else times.p99),
        attempts=_of_redis(spot, lambda run: run.work.attempts),
        commands=_of_redis(spot, lambda run: run.work.commands),
        server_us=_of_redis(spot, lambda run: run.work.server_us),
        server_s="-" if seconds is None else number(seconds),
        price="-" if seconds is None or core_hour is None else number(price(seconds, core_hour)),
        cores=cores(spot),
        used_up=", ".join(spot.saturated),
        guarantees=tuple(
            YES_OR_NO.get(str(first.guarantees.get(name, "-")), str(first.guarantees.get(name, "-")))
            for name, _ in GUARANTEES
        ),
        is_void=spot.is_void,
        is_control=first.is_control,
    )


def _of_redis(spot: Spot, get: Callable[[Run], float]) -> str:
    """Return the Redis cost of an order; empty if only the database sells, which would look like no cost."""
    return "-" if without_redis(spot.runs[0]) else number(spot.mean_of(get))


def with_interval(spot: Spot) -> str:
    """Return the geometric mean over runs and its interval: `812 [804, 820]`."""
    return with_ends(spot.mean, spot.interval)


def _latency(found: float | None) -> str:
    if found is None:
        return "-"
    return "shed" if found >= CAP_MS else number(found)


def sold_share(runs: Iterable[Run]) -> str:
    """Return units sold of min(stock, demand), over all runs: 100 % means that nothing is missing."""
    sold = wanted = 0
    for run in runs:
        demand = (run.counts.sold + run.counts.sold_out) * run.cell.quantity
        sold += run.checker.sold
        wanted += min(run.checker.stock, demand)
    if not wanted:
        return "-"
    if sold == wanted:
        return "100"
    return f"{WHOLE * sold / wanted:.4g}" if f"{WHOLE * sold / wanted:.4g}" != "100" else "not quite 100"


def cores(spot: Spot) -> str:
    """Return cores used: generator, Redis, database."""
    parts = [spot.mean_of(lambda run: run.cpu.generator), spot.mean_of(lambda run: run.cpu.redis)]
    if spot.first.cpu.database is not None:
        parts.append(spot.mean_of(lambda run: run.cpu.database or 0.0))
    return " / ".join(f"{one:.2f}" for one in parts)


def main_families(facts: Facts) -> list[Family]:
    """Return closed cells that differ in strategy and K, the best headline first.

    One sku comes before several, a sweep over K before fewer values of it, and the larger before the smaller.
    """
    swept = segment_families(facts)
    every = families([spot for spot in facts.usual if spot.cell.loop == "closed"], "segments", least=1)
    found = [*swept, *(one for one in every if one not in swept)]
    return sorted(found, key=lambda family: family.cell.skus > 1)


def main_family(facts: Facts) -> Family | None:
    """Return the cells of the strategies' table."""
    return next(iter(main_families(facts)), None)


def strategy_rows(facts: Facts) -> list[CellRow]:
    """Return that table: the fastest first, void cells and controls last."""
    family = main_family(facts)
    if family is None:
        return []
    spots = [spot for spots in family.by_strategy().values() for spot in spots]
    spots.sort(key=lambda spot: (spot.first.is_control, spot.is_void, -spot.mean, spot.cell.cell_id))
    return [cell_row(spot, facts.core_hour) for spot in spots]


def every_row(facts: Facts) -> list[CellRow]:
    """Return every cell, unfavourable ones included, in the order of their first run."""
    return [cell_row(spot, facts.core_hour) for spot in facts.spots]


@dataclass(frozen=True, slots=True)
class VoidRow:
    """A run without throughput, and the reason."""

    run: int
    cell_id: str
    is_control: bool
    why: str


def void_rows(facts: Facts) -> list[VoidRow]:
    """Return every void run and every run of a control."""
    return [
        VoidRow(run.run, run.cell_id, run.is_control, "; ".join(run.void) or "kept every promise, though it makes none")
        for run in facts.results.runs
        if run.void or run.is_control
    ]


def settings(found: Any, name: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401  # whatever JSON has
    """Return nested settings as lines: `machine.cores`, `2`."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from settings(value, f"{name}.{key}" if name else str(key))
    elif isinstance(found, list):
        yield name, ", ".join(map(str, found))
    else:
        yield name, "-" if found is None or found == "" else str(found)


def main_setting(facts: Facts) -> str:
    """Return the conditions of the strategies' table."""
    family = main_family(facts)
    return "" if family is None else setting_of(family)


def setting_of(family: Family) -> str:
    """Return the conditions that cells of different strategy and K share."""
    return f"{family.cell.loop} loop, {said(family.cell, without=('segments',))}"


def rendered(template: str, told: Mapping[str, Any]) -> str:
    """Return the text. HTML's values are escaped; a name that the template needs and that is missing is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(("html.j2",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(told)


# --- two sessions ---

COMPARED_TEMPLATE: Final = "compared.html.j2"
ORDER: Final = ("slower", "no throughput", "faster", "no difference", "not judged")


def compared_page(found: Comparison, names: tuple[str, str]) -> str:
    """Return the HTML: what got worse first, then what got better."""
    told = {
        "found": found,
        "names": names,
        "rows": sorted(found.cells, key=lambda row: ORDER.index(row.verdict)),
        "only": (("A", found.only_in_a), ("B", found.only_in_b)),
        "broken": (("A", found.broken_in_a), ("B", found.broken_in_b)),
    }
    return rendered(COMPARED_TEMPLATE, told)

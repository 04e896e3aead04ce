"""The whole benchmark `shards`: sales and cells on clusters of 1 to 8 masters, and the model's curves to 64."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field, replace
from statistics import fmean, linear_regression, median
from typing import TYPE_CHECKING, Final

from bench.analysis.fleet import Costs, Fleet, throughput
from bench.analysis.intervals import median_of
from bench.clusters import running_masters
from bench.conditions import server_conditions
from bench.cpu import OtherLoad, core_count
from bench.figures import Figure, FigureResults, of_estimate
from bench.micro.shards.cells import (
    HELD_OUT,
    LANE,
    LONE,
    MS,
    Cell,
    CellRun,
    costs_of,
    predicted,
    run_cell,
)
from bench.micro.shards.sale import AT_HOME, MICROSECONDS, Sale, sell
from bench.micro.stock.shards import TRANSFERS_MAX
from segmented.advise.prediction import ROUND_TRIP
from segmented.errors import InvalidInput
from segmented.models import SEGMENT_COUNT_MAX
from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from bench.clusters import Masters
    from bench.display import Display
    from bench.micro.shards.sale import Part

NAME: Final = "shards"
ERROR_MAX: Final = 0.1
BUSY: Final = 0.1
"""Share of all cores that other programs use, from which a machine is called busy."""
MODELLED: Final = (1, 2, 3, 4, 6, 8, 16, 32, 64)
CROWDS: Final = (100, 300, 1_000)
"""Workers of the modelled curves."""
HOLD_MS: Final = 20
WORKERS_A_CORE: Final = 20
"""Workers of the modelled curves that share one core of their machines."""
CALLS: Final = 2
"""Round trips of an order: its grant and its confirm."""


@dataclass(frozen=True, slots=True)
class ShardSizes:
    """How much is measured."""

    rounds: int = 6
    masters: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    stock_each: int = 3_000
    """Units of each shard."""
    seconds: float = 2.0
    """Seconds of a cell."""


@dataclass(slots=True)
class Measured:
    """Measured values by masters and by cells; one value a round."""

    sales: dict[int, list[Sale]] = field(default_factory=dict)
    rates: dict[Cell, list[float]] = field(default_factory=dict)
    predictions: dict[Cell, list[float]] = field(default_factory=dict)
    """Rates by the queueing model, for cells of one process."""
    cores: dict[Cell, list[float]] = field(default_factory=dict)
    costs: list[Costs] = field(default_factory=list)
    others: float = 0.0
    """Cores that other programs used."""


def measure_masters(url: str | None, display: Display, sizes: ShardSizes | None = None) -> FigureResults:
    """Measure on embedded masters. Raises InvalidInput if a server is named: no other may take part."""
    if url is not None:
        message = "--url does not fit: bench shards starts clusters of 1 to 8 masters of its own; leave it out"
        raise InvalidInput(message)
    sizes = sizes or ShardSizes()
    gc.collect()
    gc.freeze()  # otherwise each full collection scans all imports during a measurement
    try:
        with display.strategy(NAME) as progress:
            found, conditions = _measured(sizes, progress)
    finally:
        gc.unfreeze()
    figures = (
        *(figure for masters in sizes.masters for figure in sale_figures(found.sales, masters)),
        *cell_figures(found),
        *curve_figures(found.sales),
        Figure("cores that others used meanwhile", found.others, ""),
    )
    return FigureResults(NAME, figures, conditions, remarks(found))


def _measured(sizes: ShardSizes, progress: Callable[[str, int, int], None]) -> tuple[Measured, dict[str, Any]]:
    """Run every number of masters once a round."""
    found = Measured()
    conditions: dict[str, Any] = {}
    others, steps = OtherLoad(), sizes.rounds * len(sizes.masters)
    for number in range(steps):
        turn, place = divmod(number, len(sizes.masters))
        progress("sales and cells", number, steps)
        with running_masters(sizes.masters[place]) as fleet:
            conditions = conditions or {
                **server_conditions(fleet.url),
                "placement": "client and masters share the cores",
            }
            _measure_fleet(found, fleet, sizes, turn)
    found.others = others.cores()
    return found, conditions


def _measure_fleet(found: Measured, fleet: Masters, sizes: ShardSizes, turn: int) -> None:
    """Measure a sale, the times of an order, and the cells of this number of masters."""
    masters = len(fleet.servers)
    sale = sell(fleet, stock_each=sizes.stock_each, seed=turn + 1)
    found.sales.setdefault(masters, []).append(sale)
    runs: dict[Cell, list[CellRun]] = {}
    for cell in (LONE, LANE, *(one for one in HELD_OUT if one.masters == masters), LONE, LANE):
        runs.setdefault(cell, []).append(run_cell(fleet, cell, seconds=sizes.seconds))
    client, server = (_an_order([sale.early], what)[0] / MICROSECONDS for what in ("client_us", "server_us"))
    lone, lane = (fmean(run.per_second for run in runs.pop(cell)) for cell in (LONE, LANE))
    costs = costs_of(lone, lane, client=client, server=server)
    found.costs.append(costs)
    for cell, (run,) in runs.items():
        found.rates.setdefault(cell, []).append(run.per_second)
        found.predictions.setdefault(cell, []).append(predicted(cell, costs))
        found.cores.setdefault(cell, []).append(run.cores)


def sale_figures(sales: dict[int, list[Sale]], masters: int) -> Iterator[Figure]:
    """Return the costs of an order with so many masters."""
    found, name = sales[masters], name_of(masters)
    early, late = [sale.early for sale in found], [sale.late for sale in found]
    detail = {
        "operations an order, until 90 %": _each([one.operations for one in early], early),
        "operations an order, of the last 10 %": _each([one.operations for one in late], late),
        "commands an order, those inside scripts included": _each([one.commands for one in early], early),
        "orders until 90 %": [one.orders for one in early],
        "orders of the last 10 %": [one.orders for one in late],
        "idle master, us a second": [sale.idle_us for sale in found],
        "masters": masters,
    }
    yield _estimated(f"{name}: server CPU an order", _an_order(early, "server_us"), "us", detail=detail)
    yield _estimated(
        f"{name}: CPU of the most loaded one an order", [max(one.servers_us) / one.orders for one in early], "us"
    )
    if masters != min(sales):
        first = _an_order([sale.early for sale in sales[min(sales)]], "server_us")
        ratios = [ours / base for ours, base in zip(_an_order(early, "server_us"), first, strict=True)]
        yield _estimated(f"{name}: server CPU an order / with {min(sales)}", ratios, "")
    yield _estimated(f"{name}: client CPU an order", _an_order(early, "client_us"), "us")
    for part, of in ((early, "until 90 % is sold"), (late, "of the last 10 %")):
        yield _estimated(f"{name}: commands an order, {of}", _an_order(part, "sent"), "")
        yield _estimated(f"{name}: commands for other shards an order, {of}", _an_order(part, "crossing"), "")
    yield _estimated(
        f"{name}: messages to other masters an order, until 90 % is sold", _an_order(early, "messages"), ""
    )
    transfers = _estimated(f"{name}: transfers an order, until 90 % is sold", _an_order(early, "transfers"), "")
    yield replace(transfers, at_most=TRANSFERS_MAX, is_promise=True)
    yield _estimated(f"{name}: transfers an order, of the last 10 %", _an_order(late, "transfers"), "")


def _an_order(parts: Sequence[Part], what: str) -> list[float]:
    return [getattr(one, what) / one.orders for one in parts]


def cell_figures(found: Measured) -> list[Figure]:
    """Compare each held-out cell with its predictions, round by round, and return the largest error."""
    parts = {
        "beside the hold, ms": [(costs.locked + costs.outside) / MS for costs in found.costs],
        "of it with the segment, ms": [costs.locked / MS for costs in found.costs],
    }
    compared = [_compared(cell, found, rates) for cell, rates in found.predictions.items()]
    largest = max(abs(figure.value - 1) for figure in compared)
    name = "largest error of a held-out cell"
    return [*compared, Figure(name, largest, "", at_most=ERROR_MAX, detail=parts)]


def _compared(cell: Cell, found: Measured, predictions: list[float]) -> Figure:
    ratios = [ours / rate for ours, rate in zip(predictions, found.rates[cell], strict=True)]
    detail = {
        "measured, orders/s": median_of(found.rates[cell]).value,
        "predicted, orders/s": median_of(predictions).value,
        "cores used": median_of(found.cores[cell]).value,
        "cell": [cell.masters, cell.segments, cell.workers, cell.hold_ms],
    }
    return _estimated(f"predicted / measured: {cell.name}", ratios, "", detail=detail)


def curve_figures(sales: dict[int, list[Sale]]) -> Iterator[Figure]:
    """Predict throughput by masters with a core each, from the work of an order and an assumed round trip."""
    work = work_by_masters(sales)
    for workers in CROWDS:
        for masters in MODELLED:
            fleet = Fleet(
                masters=masters,
                segments=SEGMENT_COUNT_MAX // masters,
                workers=workers,
                hold=HOLD_MS * MS,
                server_cores=masters,
                client_cores=workers // WORKERS_A_CORE,
            )
            detail = {"curve": workers, "masters": masters}
            name = f"modelled: {workers:,} workers, {name_of(masters)}"
            yield Figure(name, throughput(fleet, work.costs(masters)), "orders/s", detail=detail)


@dataclass(frozen=True, slots=True)
class WorkByMasters:
    """CPU seconds of an order, as a straight line through the measured numbers of masters."""

    client: float
    one_master: float
    each_further: float
    """Seconds that each further master adds, where all share the measuring machine's cores."""

    def costs(self, masters: int) -> Costs:
        """Return the costs of an order on machines of its own, with an assumed round trip."""
        server = self.one_master + self.each_further * (masters - 1)
        home = (self.client + self.one_master) / CALLS + ROUND_TRIP
        """The work that further masters add is done beside the order, which does not wait for it."""
        away = server - self.one_master
        return Costs(locked=home, outside=home, client=self.client, server=self.one_master, beside=away)


def work_by_masters(sales: dict[int, list[Sale]]) -> WorkByMasters:
    """Return the least squares through the medians of all numbers of masters."""
    early = {masters: [sale.early for sale in found] for masters, found in sales.items()}
    client, server = (
        [median_of(_an_order(found, what)).value for found in early.values()] for what in ("client_us", "server_us")
    )
    further = [masters - 1 for masters in early]
    each, one_master = linear_regression(further, server) if len(further) > 1 else (0.0, server[0])
    return WorkByMasters(median(client) / MICROSECONDS, one_master / MICROSECONDS, max(0.0, each) / MICROSECONDS)


def name_of(masters: int) -> str:
    """Return `1 master` or `2 masters`."""
    return counted(masters, "master")


def remarks(found: Measured) -> tuple[str, ...]:
    """Return how the figures came about."""
    work, cores = work_by_masters(found.sales), core_count()
    order = " and ".join(AT_HOME).lower()
    client, one, each = (part * MICROSECONDS for part in (work.client, work.one_master, work.each_further))
    us_each = (
        f"{client:,.0f} us of client CPU and {one:,.0f} us of server CPU an order, {each:,.0f} us for each further"
    )
    said = [
        f"An order: {order}, {CALLS} commands at its home shard. Server CPU is without what an idle master uses.",
        f"Modelled: a core for each master and for each {WORKERS_A_CORE} workers; hold {HOLD_MS} ms.",
        f"Modelled with {us_each} master, by least squares, and an assumed round trip of {ROUND_TRIP / MS:g} ms.",
        f"Modelled with {SEGMENT_COUNT_MAX:,} segments over all shards.",
    ]
    if found.others > BUSY * cores:
        said.append(f"A busy machine: other programs used {found.others:.2f} of {cores} cores.")
    return tuple(said)


def _each(counts: Sequence[dict[str, int]], parts: Sequence[Any]) -> dict[str, float]:
    """Return how many of each an order has, over all rounds."""
    orders = sum(one.orders for one in parts)
    names = sorted({name for one in counts for name in one})
    return {name: sum(one.get(name, 0) for one in counts) / orders for name in names}


def _estimated(name: str, values: list[float], unit: str, *, detail: dict[str, Any] | None = None) -> Figure:
    return of_estimate(name, median_of(values), unit, detail=detail)

"""The whole benchmark `shards`: sales and cells on clusters of 1 to 8 masters, and the model's curves to 64.

A sale goes to the last unit of a pool in shards, and shows CPU time and operations of an order, by masters.

A cell is the measured throughput of workers that hold a segment while they sleep. Two cells with one shard give the
times of an order: a lone worker, and one segment that workers always wait for. All other cells are held out: neither
their workers and segments nor their holds are those of the two. The queueing model predicts the cells of one process.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf
from statistics import fmean, linear_regression, median
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import psutil
import redis

from bench.analysis.fleet import Costs, Fleet, throughput
from bench.analysis.intervals import median_of
from bench.clusters import PASSWORD, running_masters
from bench.conditions import OtherLoad, core_count, own_seconds, server_conditions
from bench.figures import Figure, FigureResults, of_estimate
from bench.micro.stock import STOCK
from bench.micro.stock.measure import EARLY, TRANSFERS_MAX, transfers_of
from bench.strategies.counted import CountingStore
from segmented import AsyncGrant, AsyncRedisStore, RedisStore
from segmented.advise import ROUND_TRIP
from segmented.errors import InvalidInput, SegmentedError
from segmented.models import SEGMENT_COUNT_MAX
from segmented.models.ids import counted
from segmented.stock import AsyncShardedPool, Grant, ShardedPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from bench.clusters import Masters
    from bench.results import Display
    from segmented.plans.drivers import Store
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")

SEGMENTS: Final = 4
"""Per shard."""
QUANTITY_MAX: Final = 5
IDLE_SECONDS: Final = 1.0
MICROSECONDS: Final = 1_000_000
AT_HOME: Final = ("Grant", "Confirm", "ReadNextDue", "NotePool")
"""Operations of every order, at its home shard, and of its process. All others are for units of other shards."""
SENT: Final = ("evalsha", "eval", "delifeq")
"""Commands that a client sends; EVAL follows where a master does not have the script yet."""
PUBLISHED: Final = ("cluster_stats_messages_publish_sent", "cluster_stats_messages_publishshard_sent")
NO_COMMANDS: Final = ("cluster", "config", "info", "ping", "hello", "client", "script", "command")
"""Commands of connections and of this measurement, not of orders."""


class NamingStore(CountingStore):
    """A store that counts operations by their names."""

    def __init__(self, store: Store) -> None:
        """Pass everything on to `store`."""
        super().__init__(store)
        self.counts: Counter[str] = Counter()

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Count and run one operation."""
        self.counts[type(operation).__name__] += 1
        return super().execute(operation, deadline=deadline)

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Count and run several operations."""
        self.counts.update(type(operation).__name__ for operation in operations)
        return super().execute_many(operations, deadline=deadline)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a sale: until 90 % was sold, or the rest of it, refusals included."""

    orders: int
    """Orders that were sold."""
    servers_us: tuple[float, ...]
    """CPU time of each master, without what it takes when idle."""
    client_us: float
    operations: Counter[str]
    """By name."""
    commands: Counter[str]
    """Commands that the masters counted, by name, those inside scripts included."""
    transfers: int
    messages: int
    """Messages from master to master: PUBLISH goes to every other one, SPUBLISH to none."""

    @property
    def server_us(self) -> float:
        """CPU time of all masters together."""
        return sum(self.servers_us)

    @property
    def sent(self) -> int:
        """Commands that the client sent."""
        return sum(self.commands[name] for name in SENT)

    @property
    def crossing(self) -> int:
        """Operations for units of other shards: reading all shards, transfers, and the lock that gatherers take."""
        return sum(count for name, count in self.operations.items() if name not in AT_HOME)


@dataclass(frozen=True, slots=True)
class Sale:
    """A whole sale."""

    masters: int
    early: Part
    late: Part
    idle_us: float
    """CPU time of a master per second without orders."""


def sell(fleet: Masters, *, stock_each: int, seed: int) -> Sale:
    """Sell a new pool, with a shard on each master, in orders of 1 to 5 units until a single unit is refused.

    One caller grants and confirms one order after the other. Raises SegmentedError if the pool's books are wrong
    afterwards.
    """
    masters = len(fleet.servers)
    with RedisStore.from_url(fleet.url) as plain:
        store = NamingStore(plain)
        pool, dice = ShardedPool(store, f"bench-shards-{seed}"), random.Random(seed)
        stock = stock_each * masters
        pool.open(stock=stock, segments=SEGMENTS * masters, shards=masters)
        _warm_up(plain, masters, seed)
        pool.state()  # reads the directory, once a process
        meter = _Meter(fleet, store)
        sold = orders = number = 0
        parts: list[Part] = []
        meter.begin()
        while True:
            quantity, number = dice.randint(1, QUANTITY_MAX), number + 1
            grant = pool.grant(f"o{number}", quantity=quantity, timeout=0)
            if isinstance(grant, Grant):
                grant.confirm()
                sold, orders = sold + quantity, orders + 1
            elif quantity == 1:
                break
            if not parts and sold >= EARLY * stock:
                parts.append(meter.part(orders, pool))
                meter.begin()
        parts.append(meter.part(orders - parts[0].orders, pool, before=parts[0].transfers))
        _check(pool, sold, stock)
    return Sale(masters, parts[0], parts[1], meter.idle_us)


def _warm_up(store: Store, masters: int, seed: int) -> None:
    """Load every script on every master, and use what this process uses for a first time."""
    pool = ShardedPool(store, f"bench-warm-{seed}")
    pool.open(stock=SEGMENTS * masters * QUANTITY_MAX, segments=SEGMENTS * masters, shards=masters)
    number = 0
    while isinstance(grant := pool.grant(f"w{number}", quantity=QUANTITY_MAX, timeout=0), Grant):
        grant.confirm()
        number += 1


def _check(pool: ShardedPool, sold: int, stock: int) -> None:
    state, report = pool.state(), pool.audit()
    if (state.confirmed, state.available, sold) != (stock, 0, stock) or not report.is_clean:
        raise SegmentedError(f"the books of {pool.sku} are wrong: {sold:,} of {stock:,} units sold, {state}")


class _Meter:
    """Reads CPU times and counts of all masters, and of this process."""

    def __init__(self, fleet: Masters, store: NamingStore) -> None:
        self._store = store
        self._processes = [psutil.Process(server.pid) for server in fleet.servers]
        self._clients = [
            redis.Redis(unix_socket_path=str(server.socket_path), password=PASSWORD) for server in fleet.servers
        ]
        begun = self._seconds()
        time.sleep(IDLE_SECONDS)
        used = sum(self._seconds()) - sum(begun)
        self.idle_us = used * MICROSECONDS / len(self._processes) / IDLE_SECONDS

    def begin(self) -> None:
        """Start a part."""
        for client in self._clients:
            client.config_resetstat()
        self._store.counts.clear()
        self._messages = self._sent()
        self._servers, self._at, self._client = self._seconds(), time.monotonic(), time.process_time()

    def part(self, orders: int, pool: ShardedPool, *, before: int = 0) -> Part:
        """End a part with so many orders; `before` is the number of transfers that earlier parts had."""
        client = time.process_time() - self._client
        seconds, used = time.monotonic() - self._at, self._seconds()
        idle = self.idle_us * seconds
        operations = self._store.counts.copy()  # before the next readings add to them
        commands: Counter[str] = Counter()
        for one in self._clients:
            found: Any = one.info("commandstats")
            commands.update({name.removeprefix("cmdstat_"): int(stats["calls"]) for name, stats in found.items()})
        return Part(
            orders=orders,
            servers_us=tuple(
                max(0.0, (now - then) * MICROSECONDS - idle) for now, then in zip(used, self._servers, strict=True)
            ),
            client_us=client * MICROSECONDS,
            operations=operations,
            commands=Counter(
                {name: count for name, count in commands.items() if name.partition("|")[0] not in NO_COMMANDS}
            ),
            transfers=transfers_of(pool) - before,
            messages=self._sent() - self._messages,
        )

    def _seconds(self) -> list[float]:
        return [own_seconds(process) for process in self._processes]

    def _sent(self) -> int:
        infos: list[Any] = [client.execute_command("CLUSTER INFO") for client in self._clients]
        return sum(int(info.get(name, 0)) for info in infos for name in PUBLISHED)


# --- cells ---

WARM_UP: Final = 0.3
TIMEOUT: Final = 30.0
"""Seconds that an order waits for a segment."""
MS: Final = 0.001


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of masters with a shard each, segments per shard, workers, and the time that an order holds one."""

    masters: int
    segments: int
    workers: int
    hold_ms: int

    @property
    def name(self) -> str:
        """Name in the figures."""
        masters, workers = counted(self.masters, "master"), counted(self.workers, "worker")
        return f"{masters} x {counted(self.segments, 'segment')}, {workers}, hold {self.hold_ms} ms"


LONE: Final = Cell(1, 1, 1, 30)
LANE: Final = Cell(1, 1, 4, 30)
"""The cells that the times of an order are read from."""
HELD_OUT: Final = (
    *(Cell(1, 4, 3, 20), Cell(1, 4, 12, 20), Cell(2, 1, 4, 20), Cell(2, 2, 3, 50), Cell(2, 2, 12, 20)),
    *(Cell(3, 1, 7, 10), Cell(3, 2, 12, 50), Cell(4, 1, 3, 10), Cell(4, 2, 24, 50)),
    *(Cell(6, 1, 12, 50), Cell(8, 1, 8, 50), Cell(8, 2, 32, 50)),
)


@dataclass(frozen=True, slots=True)
class CellRun:
    """One run of a cell."""

    per_second: float
    cores: float
    """Cores used by the workers' processes and the masters together."""


async def _run(fleet: Masters, cell: Cell, seconds: float) -> CellRun:
    """Let the workers order for some seconds, after a warm-up that does not count. Raises SegmentedError."""
    masters = [psutil.Process(server.pid) for server in fleet.servers]
    async with await AsyncRedisStore.from_url(fleet.url) as store:
        pool = AsyncShardedPool(store, f"bench-cell-{uuid4().hex[:8]}")
        await pool.open(stock=STOCK, segments=cell.segments * cell.masters, shards=cell.masters)
        begins = time.monotonic() + WARM_UP
        used, orders = await asyncio.gather(
            _used(masters, begins, seconds), _sell(pool, cell, begins=begins, seconds=seconds)
        )
    return CellRun(orders / seconds, used / seconds)


async def _sell(pool: AsyncShardedPool, cell: Cell, *, begins: float, seconds: float) -> int:
    """Let the workers order from now on, each from its own loop, and hold a segment while they sleep.

    Returns the orders that ended within the seconds after `begins`, a monotonic time.
    """
    ends, sold = begins + seconds, 0

    async def order_again() -> None:
        nonlocal sold
        while time.monotonic() < ends:
            grant = await pool.grant(order_id(), timeout=TIMEOUT)
            if isinstance(grant, AsyncGrant):
                await asyncio.sleep(cell.hold_ms * MS)
                await grant.confirm()
                sold += begins <= time.monotonic() < ends

    await asyncio.gather(*(order_again() for _ in range(cell.workers)))
    return sold


def order_id() -> str:
    """Return a random id, so that each order is at home in a random shard, as the model has it.

    Numbered ids are not: the CRC-32 gives eight ids that differ in one digit eight different ones of 8 shards.
    """
    return uuid4().hex


async def _used(masters: list[psutil.Process], begins: float, seconds: float) -> float:
    """Return the CPU seconds of the masters and of this process in the time that counts."""

    def read() -> float:
        return time.process_time() + sum(map(own_seconds, masters))

    await asyncio.sleep(begins - time.monotonic())
    before = read()
    await asyncio.sleep(begins + seconds - time.monotonic())
    return read() - before


def costs_of(lone: float, lane: float, *, client: float, server: float) -> Costs:
    """Return the parts of an order from the rates of `LONE` and `LANE`, in orders per second.

    `client` and `server` are CPU seconds of an order, which a sale has shown. Raises SegmentedError if no order was
    sold.
    """
    if not lone or not lane:
        raise SegmentedError("a worker sold no order in a cell: the machine is too busy to measure")
    whole = max(0.0, 1 / lone - LONE.hold_ms * MS)
    locked = min(whole, max(0.0, 1 / lane - LANE.hold_ms * MS))
    return Costs(locked=locked, outside=whole - locked, client=client, server=server)


def predicted(cell: Cell, costs: Costs) -> float:
    """Return the orders per second of a cell here, where one process has all workers, and all share the cores."""
    fleet = Fleet(
        masters=cell.masters,
        segments=cell.segments,
        workers=cell.workers,
        hold=cell.hold_ms * MS,
        server_cores=min(cell.masters, core_count()),
        client_cores=1,
    )
    return throughput(fleet, costs)


# --- the whole ---

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
        runs.setdefault(cell, []).append(asyncio.run(_run(fleet, cell, sizes.seconds)))
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
    found, name = sales[masters], counted(masters, "master")
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
            name = f"modelled: {workers:,} workers, {counted(masters, 'master')}"
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

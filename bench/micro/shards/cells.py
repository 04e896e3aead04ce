"""Measured throughput of workers that hold a segment while they sleep: what the models are fitted to, and checked by.

Two cells with one shard give the times of an order: a lone worker, and one segment that workers always wait for. All
other cells are held out: neither their workers and segments nor their holds are those of the two. The queueing model
predicts the cells of one process. The advisor's simulation (`segmented advise --hosts`) predicts all of them; it knows
what a waiter of another process costs, so it gets no more than the lone worker's times.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import psutil

from bench.analysis.fleet import Costs, Fleet, throughput
from bench.cpu import core_count, own_seconds
from bench.micro.shards.host import HostProcess, Work, sell
from bench.micro.stock.context import STOCK
from segmented import AsyncRedisStore
from segmented.advise import Workload, predict
from segmented.errors import SegmentedError
from segmented.models.ids import counted
from segmented.stock import AsyncShardedPool

if TYPE_CHECKING:
    from bench.clusters import Masters

WARM_UP: Final = 0.3
MS: Final = 0.001
ROUND_TRIP_MIN: Final = 1e-6
"""Seconds; a lone worker of a busy machine may seem to need none."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of masters with a shard each, segments per shard, workers, and the time that an order holds one."""

    masters: int
    segments: int
    workers: int
    hold_ms: int
    processes: int = 1
    """Each has as many of the workers."""

    @property
    def name(self) -> str:
        """Name in the figures."""
        masters, workers = counted(self.masters, "master"), counted(self.workers, "worker")
        place = "" if self.processes == 1 else f" in {self.processes} processes"
        return f"{masters} x {counted(self.segments, 'segment')}, {workers}{place}, hold {self.hold_ms} ms"


LONE: Final = Cell(1, 1, 1, 30)
LANE: Final = Cell(1, 1, 4, 30)
"""The cells that the times of an order are read from."""
HELD_OUT: Final = (
    Cell(1, 4, 3, 20),
    Cell(1, 4, 12, 20),
    Cell(2, 1, 4, 20),
    Cell(2, 2, 3, 50),
    Cell(2, 2, 12, 20),
    Cell(3, 1, 7, 10),
    Cell(3, 2, 12, 50),
    Cell(4, 1, 3, 10),
    Cell(4, 2, 24, 50),
    Cell(6, 1, 12, 50),
    Cell(8, 1, 8, 50),
    Cell(8, 2, 32, 50),
)
IN_PROCESSES: Final = (
    Cell(1, 1, 8, 20, processes=4),
    Cell(1, 4, 12, 20, processes=3),
    Cell(2, 2, 12, 10, processes=2),
    Cell(4, 1, 12, 20, processes=4),
)
"""Held out, too: cells of several processes, as hosts have them."""


@dataclass(frozen=True, slots=True)
class CellRun:
    """One run of a cell."""

    per_second: float
    cores: float
    """Cores used by the workers' processes and the masters together."""


def run_cell(fleet: Masters, cell: Cell, *, seconds: float) -> CellRun:
    """Let the workers order for some seconds, after a warm-up that does not count. Raises SegmentedError."""
    return asyncio.run(_run(fleet, cell, seconds))


async def _run(fleet: Masters, cell: Cell, seconds: float) -> CellRun:
    masters = [psutil.Process(server.pid) for server in fleet.servers]
    async with await AsyncRedisStore.from_url(fleet.url) as store:
        pool = AsyncShardedPool(store, f"bench-cell-{uuid4().hex[:8]}")
        await pool.open(stock=STOCK, segments=cell.segments * cell.masters, shards=cell.masters)
        work = Work(
            url=fleet.url,
            sku=pool.sku,
            workers=cell.workers // cell.processes,
            hold=cell.hold_ms * MS,
            seconds=seconds,
        )
        with ExitStack() as stack:  # this process is the first one
            others = [stack.enter_context(HostProcess(work)) for _ in range(cell.processes - 1)]
            for other in others:
                other.wait_ready()
            begins = time.monotonic() + WARM_UP
            for other in others:
                other.begin(begins)
            servers, ours = await asyncio.gather(_used(masters, begins, seconds), sell(pool, work, begins=begins))
            found = [ours, *(other.sold() for other in others)]
    used = servers + sum(one.cpu_seconds for one in found)
    return CellRun(sum(one.orders for one in found) / seconds, used / seconds)


async def _used(masters: list[psutil.Process], begins: float, seconds: float) -> float:
    """Return the CPU seconds of the masters in the time that counts."""
    await asyncio.sleep(begins - time.monotonic())
    before = sum(map(own_seconds, masters))
    await asyncio.sleep(begins + seconds - time.monotonic())
    return sum(map(own_seconds, masters)) - before


def costs_of(lone: float, lane: float, *, client: float, server: float) -> Costs:
    """Return the parts of an order from the rates of `LONE` and `LANE`, in orders per second.

    `client` and `server` are CPU seconds of an order, which a sale has shown. Raises SegmentedError if no order was
    sold.
    """
    if not lone or not lane:
        message = "a worker sold no order in a cell: the machine is too busy to measure"
        raise SegmentedError(message)
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


def simulated(cell: Cell, costs: Costs) -> float:
    """Return what the advisor's simulation predicts for a cell."""
    workload = Workload(
        hold=cell.hold_ms * MS,
        workers=cell.workers,
        stock=STOCK,
        servers=cell.masters,
        round_trip=max(ROUND_TRIP_MIN, (costs.locked + costs.outside) / 2),
        server_time=costs.server,
        client_time=costs.client,
        hold_spread=0.0,
        hosts=1,
        processes=cell.processes,
    )
    return predict(workload, segments=cell.segments * cell.masters).orders_per_second

"""Measured throughput of workers that hold a segment while they sleep: what the models are fitted to, and checked by.

Two cells with one shard give the times of an order: a lone worker, and one segment that workers always wait for. All
other cells are held out: neither their workers and segments nor their holds are those of the two. The queueing model
predicts the cells of one process.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import psutil

from bench.analysis.fleet import Costs, Fleet, throughput
from bench.cpu import core_count, own_seconds
from bench.micro.stock.context import STOCK
from segmented import AsyncGrant, AsyncRedisStore
from segmented.errors import SegmentedError
from segmented.models.ids import counted
from segmented.stock import AsyncShardedPool

if TYPE_CHECKING:
    from bench.clusters import Masters

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

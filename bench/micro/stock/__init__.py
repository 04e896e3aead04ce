"""The benchmark `stock`: the cost of an order, alone, in batches and merged, and of a bare decrement.

Here are the server of the benchmark on its own core, its counts, and the event loops on which calls are awaited.
"""

from __future__ import annotations

import os
import re
import statistics
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psutil
import redis

from bench.conditions import server_conditions
from segmented import RedisStore, protocol as op
from segmented.errors import InvalidInput
from segmented.keys import shard_keys
from segmented.models import SEGMENT_COUNT_MAX, Order
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOLD_MS: Final = 3_600_000
STOCK: Final = 10**9
BATCH: Final = 1_000
NAME: Final = re.compile(rb"bench-[0-9a-f]{8}-[a-z]+")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of everything is measured."""

    rounds: int = 5
    """Rounds; each ratio is measured in each round, from two consecutive measurements."""
    bare_calls: int = 60_000
    """Calls of the bare decrement per round."""
    batch_orders: int = 30_000
    """Orders through `reserve_many` and `confirm_many` per round."""
    callers: int = 1_000
    calls: int = 30
    """Calls awaited by each caller per round."""
    segment_counts: tuple[int, int] = (1, 200)
    order_counts: tuple[int, int] = (10_000, 1_000_000)
    """Numbers of orders in a pool, between which the server's time per order is compared."""
    refused: int = 1_000
    segments_most: int = SEGMENT_COUNT_MAX
    """Segments of the pools whose longest steps are measured."""
    step_rounds: int = 9
    """Rounds of each step; the least time counts."""
    sharded_stock: int = 20_000
    holds_ms: tuple[int, ...] = (5, 20)
    lanes: tuple[int, ...] = (1, 4, 16, 64)
    grant_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class BenchContext:
    """The server, the sizes and the progress callback."""

    url: str
    sizes: Sizes
    progress: Callable[[str, int, int], None]
    skus: list[str] = field(default_factory=list)
    """Opened pools, to be removed at the end."""

    def sku(self, name: str) -> str:
        """Return a new pool name."""
        found = f"bench-{uuid4().hex[:8]}-{name}"
        self.skus.append(found)
        return found


class ScriptCounter:
    """The server's own counts of scripts, read by a separate client."""

    def __init__(self, client: redis.Redis) -> None:
        """Start at zero."""
        self._client = client
        client.config_resetstat()

    def of(self, command: str = "evalsha") -> tuple[int, int]:
        """Return calls and microseconds since the start."""
        found: Any = self._client.info("commandstats")
        stats = found.get(f"cmdstat_{command}", {"calls": 0, "usec": 0})
        return int(stats["calls"]), int(stats["usec"])


def cpu_ms(client: redis.Redis) -> float:
    """Return the milliseconds of CPU that the server's main thread has used."""
    found: Any = client.info("cpu")
    return 1_000 * (float(found["used_cpu_user_main_thread"]) + float(found["used_cpu_sys_main_thread"]))


@contextmanager
def server_of(context: BenchContext) -> Iterator[tuple[RedisStore, redis.Redis]]:
    """Connect a store and a plain client; the pools are removed at the end."""
    with RedisStore.from_url(context.url) as store, redis.Redis.from_url(context.url) as client:
        try:
            yield store, client
        finally:
            names = set(context.skus)
            while context.skus:
                sku = context.skus.pop()
                client.unlink(*shard_keys(sku).listed())
                store.execute(op.DropPool(sku))
            for key in client.scan_iter(match="*bench-*", count=BATCH):  # carts, claims and locks
                found = NAME.search(key)
                if found is not None and found[0].decode() in names:
                    client.unlink(key)


@contextmanager
def emptied(url: str) -> Iterator[None]:
    """Check that the server is usable and empty; it is emptied at the end. Raises InvalidInput."""
    with RedisStore.from_url(url):
        pass  # raises a clear error for an unusable server
    with redis.Redis.from_url(url) as client:
        if client.info("keyspace"):
            message = "the server of the benchmark holds keys: name an empty one, since it is emptied in the end"
            raise InvalidInput(message)
        try:
            yield
        finally:
            client.flushall()


def open_pool(store: RedisStore, sku: str, segments: int, stock: int = STOCK) -> None:
    """Open a pool, and load the scripts."""
    store.execute(op.OpenPool(sku, stock, segments, gated=False))
    store.execute(op.ReserveMany(sku, (Order("first", 1),), HOLD_MS))
    store.execute(op.SettleMany(sku, "confirmed", ("first",)))


@contextmanager
def pinned(pid: int | None) -> Iterator[str]:
    """Pin the server to one core and this process with its children to the others; yield a description."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if pid is None or len(cores) < 2:  # noqa: PLR2004  # one core each
        yield "server and client are not pinned"
        return
    own = set(cores)
    for thread in psutil.Process(pid).threads():  # pinning a process does not move its existing threads
        os.sched_setaffinity(thread.id, {cores[-1]})
    os.sched_setaffinity(0, set(cores[:-1]))
    try:
        yield f"server on core {cores[-1]}, client on {', '.join(map(str, cores[:-1]))}"
    finally:
        os.sched_setaffinity(0, own)


@contextmanager
def measured_server(url: str | None, *packages: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield this server, or an embedded one on a core of its own, and the conditions, with these packages' versions."""
    with ExitStack() as stack:
        pid = None
        if url is None:
            server = stack.enter_context(ValkeyServer.start())
            url, pid = server.url, server.pid
        whole = server_conditions(url, *packages)  # before this process is pinned to some of the cores
        yield url, {**whole, "placement": stack.enter_context(pinned(pid))}


def quiet(found: list[float]) -> float:
    """Return the lower quartile: the server's clock includes time when another process had its core."""
    return statistics.quantiles(found, n=4)[0] if len(found) > 1 else found[0]

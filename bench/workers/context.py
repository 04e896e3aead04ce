"""The servers and processes of the benchmark: stock, broker, order database, two workers and a publisher."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import redis

from bench.dedup.context import emptied
from bench.workers.processes import environment, running_processes
from segmented import Outbox, Pool, RedisStore
from segmented.keys import shard_keys
from segmented.orders import Gate, connect, open_gated
from segmented.servers import PostgresServer, ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.workers.processes import BenchProcesses
    from bench.workers.sizes import Sizes
    from segmented.models.submitted import Deciding

SEGMENTS: Final = 20
STOCK: Final = 10**6
CONNECTIONS: Final = 40
DECIDING: Final[tuple[Deciding, ...]] = ("at acceptance", "in the worker")


@dataclass(frozen=True, slots=True)
class BenchContext:
    """Servers, processes, sizes and the progress callback."""

    sizes: Sizes
    progress: Callable[[str, int, int], None]
    url: str
    store: RedisStore
    broker: redis.Redis
    gate: Gate
    processes: BenchProcesses
    workers: list[int]
    """Process ids."""
    broken: dict[str, str] = field(default_factory=dict)
    """Faults found by the checker, by part."""

    @contextmanager
    def pool(self, decides: Deciding, *, gated: bool = False) -> Iterator[Pool]:
        """Open a new pool whose orders are not published automatically; its keys are removed afterwards."""
        pool = Pool(self.store, f"bench-{uuid4().hex[:12]}", outbox=Outbox(None, decides))
        if gated:
            open_gated(pool, self.gate, stock=STOCK, segments=SEGMENTS)
        else:
            pool.open(stock=STOCK, segments=SEGMENTS)
        try:
            yield pool
        finally:
            self.store.client.unlink(*shard_keys(pool.sku).listed())


@contextmanager
def started_context(
    url: str | None, database: str | None, sizes: Sizes, progress: Callable[[str, int, int], None]
) -> Iterator[BenchContext]:
    """Start the servers that were not named, and end them. A named stock server must be empty. Raises InvalidInput."""
    with ExitStack() as stack:
        if url is None:
            url = stack.enter_context(ValkeyServer.start()).url
        if database is None:
            database = stack.enter_context(PostgresServer.start(max_connections=CONNECTIONS)).url
        stack.enter_context(emptied(url))
        broker_url = stack.enter_context(ValkeyServer.start()).url
        broker = stack.enter_context(redis.Redis.from_url(broker_url))
        store = stack.enter_context(RedisStore.from_url(url))
        gate = stack.enter_context(Gate(connect(database, pool_size=2)))
        gate.create()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-bench-")))
        found = stack.enter_context(running_processes(environment(url, broker_url, database), folder))
        progress("workers start", 0, 1)
        yield BenchContext(sizes, progress, url, store, broker, gate, found, found.start_workers())

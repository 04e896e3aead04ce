"""Where the benchmark runs: a server on one core, this process on another, and what the server counts."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import redis

from segmented import RedisStore, protocol as op
from segmented.keys import shard_keys
from segmented.models import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.stock.sizes import Sizes

HOLD_MS: Final = 3_600_000
STOCK: Final = 10**9
BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class BenchContext:
    """A server, and who is told how far it is."""

    url: str
    sizes: Sizes
    progress: Callable[[str, int, int], None]
    skus: list[str] = field(default_factory=list)
    """Pools that were opened, to be removed."""

    def sku(self, name: str) -> str:
        """Name a pool that nobody has."""
        found = f"bench-{uuid4().hex[:8]}-{name}"
        self.skus.append(found)
        return found


class Counter:
    """The server's own counts of scripts, from a client of its own."""

    def __init__(self, client: redis.Redis) -> None:
        """Begin at zero."""
        self._client = client
        client.config_resetstat()

    def of(self, command: str = "evalsha") -> tuple[int, int]:
        """Return calls and microseconds since the beginning."""
        found: Any = self._client.info("commandstats")
        stats = found.get(f"cmdstat_{command}", {"calls": 0, "usec": 0})
        return int(stats["calls"]), int(stats["usec"])


@contextmanager
def server_of(context: BenchContext) -> Iterator[tuple[RedisStore, redis.Redis]]:
    """Connect a store, and a client that looks behind it; the pools are removed in the end."""
    with RedisStore.from_url(context.url) as store, redis.Redis.from_url(context.url) as client:
        try:
            yield store, client
        finally:
            while context.skus:
                client.unlink(*shard_keys(context.skus.pop()).listed())


def open_pool(store: RedisStore, sku: str, segments: int, stock: int = STOCK) -> None:
    """Open a pool, and let the server have the scripts."""
    store.execute(op.OpenPool(sku, stock, segments, gated=False))
    store.execute(op.ReserveMany(sku, (Order("first", 1),), HOLD_MS))
    store.execute(op.SettleMany(sku, "confirmed", ("first",)))


def batches_of(name: str, count: int) -> list[tuple[Order, ...]]:
    """Make orders of one unit, a thousand in a batch."""
    return [
        tuple(Order(f"{name}-{index}", 1) for index in range(first, min(first + BATCH, count)))
        for first in range(0, count, BATCH)
    ]


@contextmanager
def pinned(pid: int | None) -> Iterator[str]:
    """Put the server on one core and this process, with its children, on the others; says what was done."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if pid is None or len(cores) < 2:  # noqa: PLR2004  # one for each
        yield "server and client are not pinned"
        return
    own = set(cores)
    for thread in _threads_of(pid):
        os.sched_setaffinity(thread, {cores[-1]})
    os.sched_setaffinity(0, set(cores[:-1]))
    try:
        yield f"server on core {cores[-1]}, client on {', '.join(map(str, cores[:-1]))}"
    finally:
        os.sched_setaffinity(0, own)


def _threads_of(pid: int) -> list[int]:
    """Return the threads that a process has: a pinned process does not move those that are there already."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208  # bare names are wanted
    except OSError:
        return [pid]

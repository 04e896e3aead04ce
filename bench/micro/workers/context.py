"""The servers and processes of the benchmark: stock, broker, order database, two workers and a publisher."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from uuid import uuid4

import redis

from bench.micro.dedup.context import emptied
from bench.micro.workers.processes import environment, running_processes
from segmented import Outbox, Pool, RedisStore, protocol as op
from segmented.keys import shard_keys
from segmented.models.ids import counted
from segmented.orders import Gate, connect, open_gated
from segmented.servers import PostgresServer, ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench.micro.workers.processes import BenchProcesses
    from segmented.models.submitted import Deciding

SEGMENTS: Final = 20
STOCK: Final = 10**6
CONNECTIONS: Final = 200
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
    plain_workers: list[int] = field(default_factory=list)
    """Process ids of workers with Celery's own consumer, if there are any."""
    broken: dict[str, str] = field(default_factory=dict)
    """Faults found by the checker, by part."""

    @contextmanager
    def pool(self, decides: Deciding, *, gated: bool = False, segments: int = SEGMENTS) -> Iterator[Pool]:
        """Open a new pool whose orders are not published automatically; its keys are removed afterwards."""
        pool = Pool(self.store, f"bench-{uuid4().hex[:12]}", outbox=Outbox(None, decides))
        if gated:
            open_gated(pool, self.gate, stock=STOCK, segments=segments)
        else:
            pool.open(stock=STOCK, segments=segments)
        try:
            yield pool
        finally:
            self.store.client.unlink(*shard_keys(pool.sku).listed())


@contextmanager
def started_context(
    url: str | None,
    database: str | None,
    sizes: Sizes,
    progress: Callable[[str, int, int], None],
    workers: Mapping[str, str] | None = None,
) -> Iterator[BenchContext]:
    """Start the servers that were not named, and end them. A named stock server must be empty. Raises InvalidInput.

    `workers` has settings of the workers other than their defaults.
    """
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
        found = stack.enter_context(
            running_processes({**environment(url, broker_url, database), **(workers or {})}, folder)
        )
        progress("workers start", 0, 1)
        yield BenchContext(sizes, progress, url, store, broker, gate, found, found.start_workers())


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of everything is measured."""

    rounds: int = 7
    """Rounds; each runs every kind of message once, in random order."""
    singles: int = 1_000
    """Messages with one order, and empty messages, per round."""
    stored_singles: int = 400
    """The same with the order database."""
    envelopes: int = 150
    """Messages with a hundred orders, per round."""
    stored_envelopes: int = 50
    latencies: int = 150
    """Orders for the idle latency, per round and way of deciding."""
    kills: int = 4
    """Kills, alternating between orders decided at acceptance and in the worker."""

    @classmethod
    def for_options(cls, *, quick: bool, rounds: int | None) -> Self:
        """Return the sizes for command-line options."""
        sizes = cls(2, 200, 100, 30, 10, 60, 1) if quick else cls()
        return replace(sizes, rounds=rounds or sizes.rounds)


def faults(pool: Pool, sent: int, gate: Gate | None = None) -> str:
    """Return the faults after `sent` orders of one unit, all of which should be confirmed; empty if there are none."""
    state, report = pool.state(), pool.audit()
    outbox = pool.store.execute(op.ReadOutbox(pool.sku))
    found = [
        (state.confirmed != sent, f"{state.confirmed:,} of {sent:,} orders were confirmed"),
        (state.reserved != 0, f"{counted(state.reserved, 'unit', 'is')} reserved still"),
        (bool(outbox.waiting), f"{counted(outbox.waiting, 'order', 'waits')} in the outbox"),
        (bool(outbox.dead), f"{counted(outbox.dead, 'order', 'is')} in the dead-letter set"),
        (
            bool(report.drift_count),
            f"the audit found {counted(report.drift_count, 'drift')}, the first: {report.drift[:1]}",
        ),
        (bool(report.oversold), f"{counted(report.oversold, 'unit', 'was')} oversold"),
        (bool(report.refused_wrongly), f"{counted(report.refused_wrongly, 'order', 'was')} refused wrongly"),
    ]
    if gate is not None:
        sold = gate.totals(pool.sku).sold
        found.append((sold != sent, f"the order database has {sold:,} of {sent:,} orders"))
    return "; ".join(sentence for is_so, sentence in found if is_so)

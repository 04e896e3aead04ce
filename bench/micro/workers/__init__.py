"""The benchmark `workers`: orders of real Celery workers and an empty task; idle latency; recovery from a kill.

Here are its servers and processes (stock, broker, order database, two workers and a publisher) and its bursts. A burst
is a number of prepared messages: empty ones, with one order, or with a hundred. All wait in a queue that no worker
serves until it is renamed. A burst ends when the last message is acknowledged, which is after its effect. All kinds
alternate in each round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psutil
import redis

from bench.children import start_child, tell_child
from bench.conditions import OtherLoad, own_seconds
from bench.micro.stock import emptied
from bench.sizing import shuffled_rounds
from segmented import Outbox, Pool, RedisStore, protocol as op
from segmented.errors import SegmentedError
from segmented.keys import shard_keys
from segmented.models import Order
from segmented.models.ids import counted
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from segmented.models.submitted import Deciding

POOL: Final = "solo"
PROCESSES: Final = 2
QUIET: Final = ("--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")
READY_SECONDS: Final = 60.0
LEAVE_SECONDS: Final = 15.0
WORDS_MAX: Final = 2_000
APP: Final = "bench.micro.workers.app"
BEAT: Final = "beat"
EMPTY: Final = "bench.empty"
READY: Final = "BENCH_READY_FILE"
"""Environment variable: the file that a worker creates when it takes messages."""
QUEUE: Final = "segmented"
"""The queue that workers serve by default."""
PLAIN_QUEUE: Final = "bench-plain"
"""The queue of the workers with Celery's own consumer."""
CONSUMER: Final = "BENCH_CONSUMER"
"""Environment variable: the consumer of a worker, if it is not the app's."""
CELERYS_CONSUMER: Final = "celery.worker.consumer:Consumer"
LOADING: Final = "bench-loading"
"""A queue that no worker serves: messages are collected there, then the queue is renamed."""


def environment(url: str, broker: str, database: str) -> dict[str, str]:
    """Return the environment of workers and publisher: default settings except for addresses and the kind of pool."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEGMENTED_")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SEGMENTED_URL": url,
        "SEGMENTED_BROKER": broker,
        "SEGMENTED_DATABASE": database,
        "SEGMENTED_POOL": POOL,
        "SEGMENTED_CONCURRENCY": "1",
    }


class BenchProcesses:
    """Starts the processes, and ends all of them."""

    def __init__(self, given: Mapping[str, str], folder: Path) -> None:
        """Start no process yet. Processes get this environment, and their output goes to `folder`."""
        self.given = given
        self.folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        self._publisher: subprocess.Popen[str] | None = None

    # --- starting ---

    def start_workers(self, count: int = PROCESSES, more: Mapping[str, str] | None = None) -> list[int]:
        """Start workers, and return their process ids when all take messages. `more` is added to their environment."""
        marks = [self.folder / f"ready-{len(self._processes)}-{index}" for index in range(count)]
        workers = [
            self._start(
                ("-m", "celery", "-A", APP, "worker", *QUIET, f"--hostname={mark.name}@here"),
                {READY: str(mark), "SEGMENTED_ENDS_WITH_STDIN": "1", **(more or {})},
            )
            for mark in marks
        ]
        deadline = time.monotonic() + READY_SECONDS
        while not all(mark.exists() for mark in marks):
            if time.monotonic() > deadline or any(worker.poll() is not None for worker in workers):
                message = f"a worker of the benchmark was not ready within {READY_SECONDS:g} s, or ended"
                raise self._trouble(message)
            time.sleep(0.02)
        return [worker.pid for worker in workers]

    def start_plain_workers(self) -> list[int]:
        """Start workers with Celery's own consumer, on a queue of their own; return their process ids."""
        return self.start_workers(more={CONSUMER: CELERYS_CONSUMER, "SEGMENTED_QUEUE": PLAIN_QUEUE})

    def start_beat(self) -> None:
        """Start beat, which schedules the sweep of the outbox."""
        self._start(("-m", APP, BEAT), {})

    def ask(self, said: Mapping[str, object]) -> Any:  # noqa: ANN401  # what the publisher answers
        """Send a request to the publisher, and return its answer."""
        if self._publisher is None:
            self._publisher = self._start(("-m", APP), {}, stdout=subprocess.PIPE)
        publisher = self._publisher
        tell_child(publisher, json.dumps(said))
        line = "" if publisher.stdout is None else publisher.stdout.readline()
        if not line:
            message = "the publisher of the benchmark ended"
            raise self._trouble(message)
        return json.loads(line)

    def _start(
        self, words: Sequence[str], more: Mapping[str, str], *, stdout: int | None = None
    ) -> subprocess.Popen[str]:
        with (self.folder / f"words-{len(self._processes)}").open("wb") as log:
            output = log if stdout is None else stdout
            given = {**self.given, **more}
            process = start_child(words, errors=log, output=output, environment=given, folder=self.folder)
        self._processes.append(process)
        return process

    # --- ending ---

    def close(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            if process.stdin is not None:
                process.stdin.close()
            process.terminate()
        deadline = time.monotonic() + LEAVE_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _trouble(self, message: str) -> SegmentedError:
        error = SegmentedError(message)
        words = [path.read_text(errors="replace") for path in sorted(self.folder.glob("words-*"))]
        error.add_note("\n".join(words)[-WORDS_MAX:])
        return error


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
            Pool(pool.store, pool.sku, gate=self.gate).open(stock=STOCK, segments=segments)
        else:
            pool.open(stock=STOCK, segments=segments)
        try:
            yield pool
        finally:
            self.store.client.unlink(*shard_keys(pool.sku).listed())
            self.store.execute(op.DropPool(pool.sku))


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
            closing(BenchProcesses({**environment(url, broker_url, database), **(workers or {})}, folder))
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


def faults(pool: Pool, sent: int, gate: Gate | None = None) -> str:
    """Return the faults after `sent` orders of one unit that should all be confirmed; empty if there are none."""
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


# --- bursts ---

ENVELOPE: Final = 100
SUBMITTED_AT_ONCE: Final = 1_000
WARM_UP: Final = 30
LOOK_SECONDS: Final = 0.01
BURST_SECONDS: Final = 120.0
UNACKED: Final = "unacked"
"""The broker's hash of unacknowledged messages."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The content of a message."""

    decides: Deciding | None
    """Where stock is decided; None for the empty task."""
    is_stored: bool = False
    """Whether orders are stored in the order database."""
    orders: int = 1
    is_plain: bool = False
    """Whether workers with Celery's own consumer get it."""

    @property
    def name(self) -> str:
        """Name of the kind in the figures."""
        if self.decides is None:
            return "empty task of Celery's own consumer" if self.is_plain else "empty task"
        size = "one order a task" if self.orders == 1 else f"envelopes of {self.orders}"
        return f"{size}, decided {self.decides}{', PostgreSQL' if self.is_stored else ''}"

    def messages(self, sizes: Sizes) -> int:
        """Return how many messages a round has."""
        if self.orders == 1:
            return sizes.stored_singles if self.is_stored else sizes.singles
        return sizes.stored_envelopes if self.is_stored else sizes.envelopes


EMPTY_TASK: Final = Kind(None)
PLAIN_TASK: Final = Kind(None, is_plain=True)
KINDS: Final = (
    EMPTY_TASK,
    PLAIN_TASK,
    *(Kind(decides, stored, orders) for decides in DECIDING for stored in (False, True) for orders in (1, ENVELOPE)),
)


@dataclass(frozen=True, slots=True)
class Burst:
    """The measurements of a burst."""

    items: int
    """Number of orders or empty tasks."""
    seconds: float
    cpu: float
    """CPU seconds of the worker processes."""

    @property
    def rate(self) -> float:
        """Orders or empty tasks per second."""
        return self.items / self.seconds

    @property
    def per_cpu(self) -> float:
        """Orders or empty tasks per CPU second of the worker processes."""
        return self.items / self.cpu

    @property
    def cpu_each(self) -> float:
        """CPU microseconds of the worker processes per order or empty task."""
        return self.cpu / self.items * 1e6


def measure_bursts(context: BenchContext) -> tuple[dict[Kind, list[Burst]], float]:
    """Run all kinds in every round, in random order. Return the bursts, and the cores used by other programs."""
    found: dict[Kind, list[Burst]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        context.progress("first messages", 0, 1)
        _burst(context, kind, min(WARM_UP, kind.messages(context.sizes)))
    others = OtherLoad()
    for number, kind in shuffled_rounds(KINDS, context.sizes.rounds):
        context.progress("bursts", number, context.sizes.rounds)
        found[kind].append(_burst(context, kind, kind.messages(context.sizes)))
    return found, others.cores()


def _burst(context: BenchContext, kind: Kind, messages: int) -> Burst:
    if kind.decides is None:
        return empty_burst(context, messages, is_plain=kind.is_plain)
    with context.pool(kind.decides, gated=kind.is_stored) as pool:
        sent = load(context, pool, [f"o-{index}" for index in range(messages * kind.orders)], kind.orders)
        burst = work_off(context, messages, sent)
        if fault := faults(pool, sent, context.gate if kind.is_stored else None):
            context.broken.setdefault(kind.name, fault)
    return burst


def empty_burst(context: BenchContext, messages: int, *, is_plain: bool = False) -> Burst:
    """Work off messages of the empty task."""
    context.processes.ask({"do": "empty", "queue": LOADING, "count": messages})
    return work_off(context, messages, messages, is_plain=is_plain)


def load(context: BenchContext, pool: Pool, ids: list[str], size: int) -> int:
    """Submit orders of one unit, and prepare messages of `size` orders each. Return how many orders there are."""
    for first in range(0, len(ids), SUBMITTED_AT_ONCE):
        answers = pool.submit_many([Order(order_id, 1) for order_id in ids[first : first + SUBMITTED_AT_ONCE]])
        for answer in answers:
            if isinstance(answer, SegmentedError):
                raise answer
    envelopes = [ids[first : first + size] for first in range(0, len(ids), size)]
    context.processes.ask({"do": "orders", "queue": LOADING, "sku": pool.sku, "envelopes": envelopes})
    return len(ids)


def work_off(context: BenchContext, messages: int, items: int, *, is_plain: bool = False) -> Burst:
    """Give the prepared messages to the workers, and wait until the last one is acknowledged."""
    broker, queue = context.broker, PLAIN_QUEUE if is_plain else QUEUE
    workers = [psutil.Process(pid) for pid in (context.plain_workers if is_plain else context.workers)]
    broker.config_resetstat()
    cpu = sum(map(own_seconds, workers))
    began = time.perf_counter()
    broker.rename(LOADING, queue)
    while not _is_done(context, messages, queue):
        time.sleep(LOOK_SECONDS)
        if time.perf_counter() - began > BURST_SECONDS:
            raise SegmentedError(f"{messages:,} messages were not worked off within {BURST_SECONDS:g} s")
    seconds = time.perf_counter() - began
    return Burst(items, seconds, sum(map(own_seconds, workers)) - cpu)


def _is_done(context: BenchContext, messages: int, queue: str) -> bool:
    """Return whether nothing is queued or unacknowledged, and all sent messages were acknowledged.

    The count is needed because a message may be between queue and worker.
    """
    pipe = context.broker.pipeline(transaction=False)
    pipe.llen(queue)
    pipe.hlen(UNACKED)
    waiting, in_hand = pipe.execute()
    if waiting or in_hand:
        return False
    stats: Any = context.broker.info("commandstats")
    return int(stats.get("cmdstat_hdel", {"calls": 0})["calls"]) >= messages

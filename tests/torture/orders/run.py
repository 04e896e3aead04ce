"""One run of `torture orders`, from its servers to its report."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis
from sqlalchemy import text

from bench.conditions import server_conditions
from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.torture.event_log import LOG, LogTail
from tests.torture.judge import MUST_BE_ZERO, OrderChecker
from tests.torture.orders.messages import MessageTracker
from tests.torture.orders.options import KillSchedule
from tests.torture.orders.workers import Submission, be_beat, be_submitter, be_worker
from tests.torture.report import Report
from tests.torture.supervisor import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from bench.results import Display, Progress
    from tests.torture.judge import OrdersVerdict
    from tests.torture.orders.messages import Recovery
    from tests.torture.orders.options import OrdersOptions

SUBMITTER: Final = 0
"""Its number in the log of messages; those of workers are greater."""
STOP_SECONDS: Final = 20.0
RECOVERY_ASKED: Final = 10.0
"""Seconds within which another worker should finish a killed worker's orders."""

STEP: Final = "tests.torture.orders.instrumentation:work"
SKU: Final = "torture"
SEGMENTS: Final = 16
ENVELOPE_MAX: Final = 20
"""Orders per message: few, so that a kill hits one of many messages."""
OWN_CONNECTIONS: Final = 8
CONNECTIONS_A_WORKER: Final = 4
"""A killed worker's connection lasts until the server detects it."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a run, with an open pool."""

    store: RedisStore
    broker: str
    pool: Pool
    engine: Engine | None
    """Engine of the order database, if orders take effect there."""
    environment: dict[str, str]
    """The complete environment of the processes."""


def servers(options: OrdersOptions, folder: Path, stack: ExitStack) -> Servers:
    """Start the servers and open the pool; `stack` ends them."""
    stock, broker = (stack.enter_context(ValkeyServer.start()).url for _ in range(2))
    store = stack.enter_context(RedisStore.from_url(stock))
    database = f"sqlite:///{folder / 'unused.sqlite'}"  # workers require one at startup
    engine, gate = None, None
    if options.effect == "postgresql":
        connections = OWN_CONNECTIONS + CONNECTIONS_A_WORKER * options.workers
        database = stack.enter_context(PostgresServer.start(max_connections=connections)).url
        engine = connect(database, pool_size=1)
        gate = stack.enter_context(Gate(engine))
        gate.create()
    Pool(store, SKU, gate=gate).open(stock=options.stock(), segments=SEGMENTS)
    return Servers(store, broker, Pool(store, SKU), engine, environment_of(stock, broker, database))


def environment_of(url: str, broker: str, database: str) -> dict[str, str]:
    """Return the complete environment of the processes."""
    ours = {
        "URL": url,
        "BROKER": broker,
        "DATABASE": database,
        "STEP": STEP,
        "CONCURRENCY": "1",
        "ENVELOPE_MAX": str(ENVELOPE_MAX),
        "AUDIT_EVERY": "0",  # the run has its own checker, and an audit of a million orders would disturb it
    }
    others = {name: value for name, value in os.environ.items() if not name.startswith("SEGMENTED_")}
    quiet = {"PYTHONWARNINGS": "ignore:You"}  # 're running the worker with superuser privileges, as a container does
    return {**others, **quiet, **{f"SEGMENTED_{name}": value for name, value in ours.items()}}


TICK: Final = 0.01
START_SECONDS: Final = 120.0
"""Seconds for all processes to start, on a busy machine."""
STALLED_SECONDS: Final = 90.0
"""Seconds without progress after which the remaining orders count as lost: more than an outbox's longest wait."""
QUEUE_SECONDS: Final = 20.0
"""Seconds for the duplicates that are still queued at the end."""
AHEAD_OF_DONE: Final = 2_000
AHEAD_OF_KILLS: Final = 1_500
"""How many orders the submitter may be ahead, so that workers always have work, even at the last kill."""
ROWS: Final = 10_000
ROWS_OF: Final = text("SELECT order_id, state, quantity FROM segmented_orders WHERE sku = :sku")
QUEUES: Final = ("segmented",)
UNACKED: Final = "unacked"


def torture_orders(options: OrdersOptions, display: Display) -> Report:
    """Run on embedded servers. Raises SegmentedError if a process ends that the run did not kill."""
    with tempfile.TemporaryDirectory(prefix="segmented-torture-") as name, ExitStack() as stack:
        folder = Path(name)
        progress = stack.enter_context(display.strategy("torture orders"))
        found = servers(options, folder, stack)
        processes = stack.enter_context(Processes(folder, found.environment))
        run = Run(options, found, processes, progress, folder)
        run.start()
        run.inject_faults()
        return run.finish()


class Run:
    """One run on started servers."""

    def __init__(
        self, options: OrdersOptions, found: Servers, processes: Processes, progress: Progress, folder: Path
    ) -> None:
        """Prepare the run; it does not start anything."""
        self._options = options
        self._servers = found
        self._processes = processes
        self._progress = progress
        self._folder = folder
        self._tails: dict[int, LogTail] = {}
        self._workers_started = 0
        self._submitter = 0
        self._log = folder / "accepted.log"
        self._accepted = LogTail(self._log)
        self._total = options.order_count
        self._checker = OrderChecker(self._total, options.stock(), has_database=found.engine is not None)
        self._messages = MessageTracker(self._total)
        self._kill_schedule = KillSchedule(options.kill_count, self._total, random.Random(options.seed))
        self._allowed = 0
        self._done = 0
        self._seconds = 0.0
        self._conditions = conditions(options, found)
        moment = time.monotonic_ns()
        seconds, microseconds = found.store.client.time()
        self._offset_us = int(seconds) * 1_000_000 + int(microseconds) - moment // 1_000

    def start(self) -> None:
        """Start all processes, and wait until the workers are ready. Raises SegmentedError."""
        self._progress("starting", 0, 1)
        options = self._options
        for _ in range(options.workers):
            self._start_worker()
        self._start(be_beat, name="beat")
        decides: Any = options.decides
        url = str(self._servers.environment["SEGMENTED_URL"])
        submission = Submission(url, SKU, decides, self._total, options.seed, str(self._log))
        self._submitter = self._start(be_submitter, submission, name="submitter", may_end=True)
        until = time.monotonic() + START_SECONDS
        while sum(worker.is_ready for worker in self._messages.workers.values()) < options.workers:
            self._read_logs()
            if time.monotonic() > until:
                message = f"the workers were not ready within {START_SECONDS:g} s"
                raise SegmentedError(message)
            time.sleep(TICK)

    def inject_faults(self) -> None:
        """Submit all orders and kill workers, until all orders are done or there is no more progress."""
        began = changed = time.monotonic()
        while True:
            self._allow()
            is_new = self._count_done()
            now = time.monotonic()
            changed = now if is_new else changed
            number = self._kill_schedule.choose(self._done, now, self._messages.workers)
            if number is not None:
                at_ns = self._processes.kill(number)
                self._messages.feed(number, self._tails.pop(number).lines())
                self._messages.kill(number, at_ns)
                self._start_worker()
            self._progress("orders and kills", self._done, self._total)
            if self._done >= self._total or now - changed > STALLED_SECONDS:
                break
            time.sleep(TICK)
        self._seconds = time.monotonic() - began
        until = time.monotonic() + QUEUE_SECONDS
        while self._left_at_broker()[0] and time.monotonic() < until:
            self._read_logs()
            time.sleep(TICK)

    def finish(self) -> Report:
        """Stop all processes, and check every order."""
        self._progress("counting", 0, 1)
        self._processes.ask_to_stop()
        self._processes.join(STOP_SECONDS)
        self._read_logs(may_end=True)
        queued, unacked = self._left_at_broker()
        lost = self._messages.lost([*queued, *unacked])
        self._checker.ledger(self._servers.pool.read_ledger())
        self._checker.rows(self._rows())
        verdict = self._checker.verdict()
        if self._checker.answered != self._total:
            message = f"only {self._checker.answered:,} of {self._total:,} orders were submitted"
            raise SegmentedError(message)
        return report_of(
            self._options,
            verdict,
            [*self._drift(verdict)],
            {
                "kills": self._kill_schedule.killed,
                "workers_started": self._workers_started,
                "messages_published": self._messages.published,
                "messages_lost_by_the_broker": lost,
                "orders_published_again": self._messages.published_again,
                "duplicates_absorbed": self._messages.duplicates_absorbed,
                "steps_repeated": self._messages.works_repeated,
                "seconds": round(self._seconds, 2),
                "orders_per_s": round(self._total / self._seconds, 1),
            },
            self._messages.recovery(self._checker.decided_us, self._offset_us),
            self._conditions,
        )

    # --- steps ---

    def _start_worker(self) -> None:
        self._workers_started += 1
        self._start(be_worker, f"worker-{self._workers_started}", name="worker")

    def _start(self, target: Callable[..., None], *arguments: object, name: str, may_end: bool = False) -> int:
        """Start a process whose messages are logged."""
        log = self._folder / f"messages-{self._processes.started}.log"
        number = self._processes.start(target, *arguments, name=name, may_end=may_end, variables={LOG: str(log)})
        self._tails[number] = LogTail(log)
        return number

    def _read_logs(self, *, may_end: bool = False) -> None:
        if not may_end:
            self._processes.require_alive()
        for number, tail in self._tails.items():
            self._messages.feed(SUBMITTER if number == self._submitter else number, tail.lines())
        for line in self._accepted.lines():
            self._checker.answer(line)

    def _allow(self) -> None:
        step = self._total / (self._options.kill_count + 1)
        upto = self._done + AHEAD_OF_DONE
        if not self._kill_schedule.is_over:
            upto = min(upto, int(step * (self._kill_schedule.killed + 1)) + AHEAD_OF_KILLS)
        upto = min(self._total, upto)
        if upto > self._allowed:
            self._allowed = upto
            self._processes.tell(self._submitter, upto)

    def _count_done(self) -> bool:
        """Count the orders in the submitter's log that have left the outbox; return whether there are more."""
        self._read_logs()
        answered = self._checker.answered
        done = max(self._done, answered - self._servers.store.execute(op.ReadOutbox(SKU)).waiting)
        is_new, self._done = done > self._done, done
        return is_new

    def _left_at_broker(self) -> tuple[list[str], list[str]]:
        """Return the ids of the messages in the queue, and of those that no worker has acknowledged."""
        with redis.Redis.from_url(self._servers.broker) as client:
            queued: Any = [client.lrange(name, 0, -1) for name in QUEUES]
            unacked: Any = client.hvals(UNACKED)
        queued_ids = [json.loads(message)["headers"]["id"] for queue in queued for message in queue]
        return queued_ids, [json.loads(message)[0]["headers"]["id"] for message in unacked]

    def _rows(self) -> Iterator[tuple[str, str, int]]:
        if self._servers.engine is None:
            return
        with self._servers.engine.connect() as connection:
            streamed = connection.execution_options(isolation_level="READ COMMITTED", yield_per=ROWS)
            yield from map(tuple, streamed.execute(ROWS_OF, {"sku": SKU}))

    def _drift(self, verdict: OrdersVerdict) -> Iterator[str]:
        """Compare the pool's counters with the folded ledger."""
        state = self._servers.pool.state()
        for name in ("confirmed", "reserved", "available"):
            found, expected = getattr(state, name), getattr(verdict, f"units_{name}")
            if found != expected:
                yield f"the pool has {found:,} units {name}, its ledger says {expected:,}"


def conditions(options: OrdersOptions, found: Servers) -> dict[str, Any]:
    """Return versions, cores and options."""
    url = str(found.environment["SEGMENTED_URL"])
    return {
        **server_conditions(url, "celery", "kombu"),
        "options": {
            "orders": options.order_count,
            "kills": options.kill_count,
            "decides": options.decides,
            "effect": options.effect,
            "workers": options.workers,
            "seed": options.seed,
            "stock": options.stock(),
            "segments": SEGMENTS,
            "orders_in_a_message": ENVELOPE_MAX,
            "leader": "celery beat, and the sweep in the workers themselves",
        },
    }


COUNTED: Final = {
    "kills": "workers killed",
    "messages_published": "messages published",
    "messages_lost_by_the_broker": "messages that the broker lost",
    "orders_published_again": "orders that the sweep published again",
    "duplicates_absorbed": "duplicates absorbed",
    "steps_repeated": "work done again for an order",
}


def report_of(  # each once
    options: OrdersOptions,
    verdict: OrdersVerdict,
    drift: list[str],
    counted: dict[str, Any],
    recovery: Recovery,
    conditions: dict[str, Any],
) -> Report:
    """Return the report. A run that broke a guarantee has no other figures."""
    broken = [*verdict.broken, *drift]
    if counted["kills"] < options.kill_count:
        broken.append(f"only {counted['kills']:,} of {options.kill_count:,} workers could be killed")
    answered = {name: getattr(verdict, name) for name in ("accepted", "confirmed", "refused", "units_confirmed")}
    recovered = {name: round(value, 3) for name, value in asdict(recovery).items()}
    figures = {**answered, **counted, "recovery": recovered, "recovery_asked_s": RECOVERY_ASKED}
    zeros = [(label, f"{verdict.counts[name]:,}") for name, label in MUST_BE_ZERO.items()]
    rows = [
        ("orders accepted", f"{verdict.accepted:,}"),
        ("confirmed, refused", f"{verdict.confirmed:,}, {verdict.refused:,}"),
        ("units confirmed, of", f"{verdict.units_confirmed:,}, {options.stock():,}"),
        *((label, f"{counted[name]:,}") for name, label in COUNTED.items()),
        ("orders in the hands of killed workers", f"{recovery.orders:,}"),
        ("recovered within, median and p99", f"{recovery.p50_s:.1f} s, {recovery.p99_s:.1f} s"),
        ("recovered within, all", f"{recovery.max_s:.1f} s (asked: {RECOVERY_ASKED:g} s)"),
        ("met several kills; longest from the first", f"{recovery.orders_of_several:,}, {recovery.first_max_s:.1f} s"),
        ("seconds", f"{counted['seconds']:.1f}"),
        ("orders/s, kills included", f"{counted['orders_per_s']:,.0f}"),
    ]
    return Report(
        benchmark="torture-orders",
        broken=broken,
        must_be_zero=verdict.counts,
        figures={} if broken else figures,
        conditions=conditions,
        heads=("", f"{options.effect}, {options.decides}"),
        rows=zeros if broken else [*rows, *zeros],
    )

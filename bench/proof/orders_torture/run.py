"""One run of `torture orders`, from its servers to its verdict."""

from __future__ import annotations

import json
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis
from sqlalchemy import select

from bench.conditions import server_conditions
from bench.proof.orders_torture.event_log import LogTail
from bench.proof.orders_torture.messages import MessageTracker
from bench.proof.orders_torture.options import KillSchedule
from bench.proof.orders_torture.order_checker import OrderChecker
from bench.proof.orders_torture.processes import RunProcesses
from bench.proof.orders_torture.results import OrdersResults
from bench.proof.orders_torture.servers import ENVELOPE_MAX, SEGMENTS, SKU, Servers, servers
from bench.proof.orders_torture.submitter import SubmitterAssignment
from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.orders.tables import orders as orders_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.display import Display, Progress
    from bench.proof.orders_torture.options import OrdersOptions
    from bench.proof.orders_torture.order_checker import Verdict

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
QUEUES: Final = ("segmented",)
UNACKED: Final = "unacked"


def torture_orders(options: OrdersOptions, display: Display) -> OrdersResults:
    """Run on embedded servers. Raises SegmentedError if a process ends that the run did not kill."""
    with tempfile.TemporaryDirectory(prefix="segmented-torture-") as name:
        folder = Path(name)
        with (
            display.strategy("torture orders") as progress,
            servers(options, folder) as found,
            RunProcesses(found.environment, folder) as processes,
        ):
            run = Run(options, found, processes, progress, folder)
            run.start()
            run.inject_faults()
            return run.finish()


class Run:
    """One run on started servers."""

    def __init__(
        self, options: OrdersOptions, found: Servers, processes: RunProcesses, progress: Progress, folder: Path
    ) -> None:
        """Prepare the run; it does not start anything."""
        self._options = options
        self._servers = found
        self._processes = processes
        self._progress = progress
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
            self._processes.start_worker()
        self._processes.start_beat()
        decides: Any = options.decides
        self._processes.start_submitter(
            SubmitterAssignment(
                str(self._servers.environment["SEGMENTED_URL"]), SKU, decides, self._total, options.seed, str(self._log)
            ).as_json()
        )
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
                at_ns, last_lines = self._processes.kill(number)
                self._messages.feed(number, last_lines)
                self._messages.kill(number, at_ns)
                self._processes.start_worker()
            self._progress("orders and kills", self._done, self._total)
            if self._done >= self._total or now - changed > STALLED_SECONDS:
                break
            time.sleep(TICK)
        self._seconds = time.monotonic() - began
        until = time.monotonic() + QUEUE_SECONDS
        while self._left_at_broker()[0] and time.monotonic() < until:
            self._read_logs()
            time.sleep(TICK)

    def finish(self) -> OrdersResults:
        """Stop all processes, and check every order."""
        self._progress("counting", 0, 1)
        self._processes.stop()
        self._read_logs(may_end=True)
        queued, unacked = self._left_at_broker()
        lost = self._messages.lost([*queued, *unacked])
        self._checker.ledger(self._servers.pool.read_ledger())
        self._checker.rows(self._rows())
        verdict = self._checker.verdict()
        if self._checker.answered != self._total:
            message = f"only {self._checker.answered:,} of {self._total:,} orders were submitted"
            raise SegmentedError(message)
        return OrdersResults(
            options=self._options,
            verdict=verdict,
            drift=tuple(self._drift(verdict)),
            kills=self._kill_schedule.killed,
            started=self._processes.started,
            seconds=self._seconds,
            published=self._messages.published,
            messages_lost=lost,
            published_again=self._messages.published_again,
            duplicates_absorbed=self._messages.duplicates_absorbed,
            works_repeated=self._messages.works_repeated,
            recovery=self._messages.recovery(self._checker.decided_us, self._offset_us),
            conditions=self._conditions,
        )

    # --- steps ---

    def _read_logs(self, *, may_end: bool = False) -> None:
        if not may_end:
            self._processes.look()
        for number, lines in self._processes.new_lines():
            self._messages.feed(number, lines)
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
            self._processes.allow(upto)

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
        columns = (orders_table.c.order_id, orders_table.c.state, orders_table.c.quantity)
        last = ""
        with self._servers.engine.connect() as connection:
            while True:
                page = select(*columns).where(orders_table.c.sku == SKU, orders_table.c.order_id > last)
                found = connection.execute(page.order_by(orders_table.c.order_id).limit(ROWS)).all()
                if not found:
                    return
                yield from map(tuple, found)
                last = found[-1].order_id

    def _drift(self, verdict: Verdict) -> Iterator[str]:
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

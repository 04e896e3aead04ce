"""One torture of orders, from its servers to its verdict."""

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
from bench.orders_torture.books import Books
from bench.orders_torture.fleet import Fleet
from bench.orders_torture.killer import Killer
from bench.orders_torture.lines import Tail
from bench.orders_torture.messages import Messages
from bench.orders_torture.results import OrdersResults
from bench.orders_torture.screen import Screen
from bench.orders_torture.servers import ENVELOPE_MAX, SEGMENTS, SKU, Servers, servers
from bench.orders_torture.submitter import SubmitterAssignment
from segmented import protocol as op
from segmented.clock import SystemClock
from segmented.errors import SegmentedError
from segmented.orders.tables import orders as orders_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from bench.orders_torture.books import Verdict
    from bench.orders_torture.options import OrdersOptions

TICK: Final = 0.01
START_SECONDS: Final = 120.0
"""For all processes to be there, on a machine that is busy with other things."""
STALLED_SECONDS: Final = 90.0
"""Without any order done, after which what is left counts as lost: more than an outbox waits at most."""
QUEUE_SECONDS: Final = 20.0
"""For the duplicates that are still in the queue at the end."""
AHEAD_OF_DONE: Final = 2_000
AHEAD_OF_KILLS: Final = 1_500
"""Orders that the submitter may be ahead, so that there is always work, and some left for the last kill."""
ROWS: Final = 10_000
QUEUES: Final = ("segmented",)
UNACKED: Final = "unacked"


def torture_orders(options: OrdersOptions, console: Console) -> OrdersResults:
    """Torture on servers of our own. Raises SegmentedError when a process ends that was not killed by us."""
    with tempfile.TemporaryDirectory(prefix="segmented-torture-") as name:
        folder = Path(name)
        with (
            Screen(console, options.order_count, options.kill_count, SystemClock()) as screen,
            servers(options, folder) as found,
            Fleet(found.environment, folder) as fleet,
        ):
            run = Run(options, found, fleet, screen, folder)
            run.start()
            run.torment()
            return run.finish()


class Run:
    """One run on servers that are there."""

    def __init__(self, options: OrdersOptions, found: Servers, fleet: Fleet, screen: Screen, folder: Path) -> None:
        """Touch nothing yet."""
        self._options = options
        self._servers = found
        self._fleet = fleet
        self._screen = screen
        self._log = folder / "accepted.log"
        self._accepted = Tail(self._log)
        self._total = options.order_count
        self._books = Books(self._total, options.stock(), has_database=found.engine is not None)
        self._messages = Messages(self._total)
        self._killer = Killer(options.kill_count, self._total, random.Random(options.seed))
        self._allowed = 0
        self._done = 0
        self._seconds = 0.0
        self._conditions = conditions(options, found)
        moment = time.monotonic_ns()
        seconds, microseconds = found.store.client.time()
        self._offset_us = int(seconds) * 1_000_000 + int(microseconds) - moment // 1_000

    def start(self) -> None:
        """Start everybody, and wait until the workers are ready. Raises SegmentedError."""
        self._screen.phase("starting")
        options = self._options
        for _ in range(options.workers):
            self._fleet.start_worker()
        self._fleet.start_beat()
        decides: Any = options.decides
        self._fleet.start_submitter(
            SubmitterAssignment(
                str(self._servers.environment["SEGMENTED_URL"]), SKU, decides, self._total, options.seed, str(self._log)
            ).as_json()
        )
        until = time.monotonic() + START_SECONDS
        while sum(hand.is_ready for hand in self._messages.hands.values()) < options.workers:
            self._hear()
            if time.monotonic() > until:
                message = f"the workers were not ready within {START_SECONDS:g} s"
                raise SegmentedError(message)
            time.sleep(TICK)

    def torment(self) -> None:
        """Have all orders submitted, and workers killed, until all orders are done or nothing goes on any more."""
        self._screen.phase("orders and kills")
        began = changed = time.monotonic()
        while True:
            self._allow()
            is_new = self._count_done()
            now = time.monotonic()
            changed = now if is_new else changed
            number = self._killer.choose(self._done, now, self._messages.hands)
            if number is not None:
                at_ns, last_lines = self._fleet.kill(number)
                self._messages.feed(number, last_lines)
                self._messages.kill(number, at_ns)
                self._fleet.start_worker()
            self._screen.show(self._done, self._killer.killed)
            if self._done >= self._total or now - changed > STALLED_SECONDS:
                break
            time.sleep(TICK)
        self._seconds = time.monotonic() - began
        until = time.monotonic() + QUEUE_SECONDS
        while self._left_at_broker()[0] and time.monotonic() < until:
            self._hear()
            time.sleep(TICK)

    def finish(self) -> OrdersResults:
        """Stop everybody, and count."""
        self._screen.phase("counting")
        self._fleet.stop()
        self._hear(may_end=True)
        queued, unacked = self._left_at_broker()
        lost = self._messages.lost([*queued, *unacked])
        self._books.ledger(self._servers.pool.read_ledger())
        self._books.rows(self._rows())
        verdict = self._books.verdict()
        if self._books.answered != self._total:
            message = f"only {self._books.answered:,} of {self._total:,} orders were submitted"
            raise SegmentedError(message)
        return OrdersResults(
            options=self._options,
            verdict=verdict,
            drift=tuple(self._drift(verdict)),
            kills=self._killer.killed,
            started=self._fleet.started,
            seconds=self._seconds,
            published=self._messages.published,
            messages_lost=lost,
            published_again=self._messages.published_again,
            duplicates_absorbed=self._messages.duplicates_absorbed,
            works_repeated=self._messages.works_repeated,
            recovery=self._messages.recovery(self._books.decided_us, self._offset_us),
            conditions=self._conditions,
        )

    # --- steps ---

    def _hear(self, *, may_end: bool = False) -> None:
        if not may_end:
            self._fleet.look()
        for number, lines in self._fleet.news():
            self._messages.feed(number, lines)
        for line in self._accepted.lines():
            self._books.answer(line)

    def _allow(self) -> None:
        step = self._total / (self._options.kill_count + 1)
        upto = self._done + AHEAD_OF_DONE
        if not self._killer.is_over:
            upto = min(upto, int(step * (self._killer.killed + 1)) + AHEAD_OF_KILLS)
        upto = min(self._total, upto)
        if upto > self._allowed:
            self._allowed = upto
            self._fleet.allow(upto)

    def _count_done(self) -> bool:
        """Count the orders that are in the submitter's log, and not in the outbox any more."""
        self._hear()
        answered = self._books.answered
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
        """Compare the pool's own numbers with the ledger that was added up."""
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

"""One run of a sale: open, read what is decided, submit the rest, follow the ledger until all is decided, check.

The gate's rows are opened first, then the pools. If another sale is already there, nothing is opened. Earlier decisions
are read from the records, new ones from the ledger.

Each worker process runs in its own session, so that Ctrl-C reaches only the command, which shuts down in order. Each
also holds the reading end of a pipe that closes when the command ends, however it ends. Their output goes to unnamed
files, which nobody has to remove.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, Self

from amqp.exceptions import AccessRefused
from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import AuthenticationError

from segmented import protocol as op
from segmented.celery.apps import celery_settings
from segmented.celery.messages import BACKLOG_MAX, TASK, Envelope, sweep_pool, waiting
from segmented.celery.selling.report import Book, Outcome, SaleReport, Screen, settle_accounts
from segmented.errors import InvalidInput, SegmentedError, StoreError, StoreUnavailable
from segmented.masking import masked
from segmented.models import Assignment, Decided, LedgerEntry, OrderRecord, OrderState, PoolState, Settled
from segmented.models.ids import plural
from segmented.orders import Gate, connect
from segmented.orders.opening import UNGATED, open_rows, state_of, stock_said
from segmented.plans import run_sync
from segmented.stock import Outbox, Pool
from segmented.stock.outbox import dead_plan
from segmented.stock.settings import Opening
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from rich.console import Console

    from segmented.celery.selling.orders_file import FileOrder, OrderKey, OrdersFile
    from segmented.celery.selling.servers import Choices, Servers
    from segmented.celery.settings import WorkerSettings
    from segmented.clock import Clock

DECIDED: Final[Mapping[str, OrderState]] = {
    "confirmed": "confirmed",
    "cancelled": "cancelled",
    "expired": "expired",
    "refused": "refused",
}
"""Ledger entry -> the final state. Other entries, such as `reserved`, leave the order undecided."""
WINDOW: Final = 8_000
"""Maximum orders in progress: enough to keep every worker busy between two reads, few enough to be decided soon."""
BATCH: Final = 1_000
"""Orders submitted between two reads of the ledger."""
PAUSE_SECONDS: Final = 0.01
SWEEP_SECONDS: Final = 1.0
STUCK_AFTER: Final = 5
"""The sale ends with undecided orders if none was decided for this many times `--republish-after`."""
STUCK_SECONDS_MIN: Final = 20.0
"""And for this long: the workers have to start, on a slow machine too."""
PAGE: Final = 1_000
DEATHS_MAX: Final = 5
"""Maximum deaths in a row without an order decided in between."""
STOP_SECONDS: Final = 8.0
TAIL_LINES: Final = 12
TAIL_BYTES: Final = 16_384
COMMAND: Final = (
    *(sys.executable, "-P", "-m", "segmented.celery", "--loglevel", "WARNING"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
)
CONNECT_SECONDS: Final = 5
ORDERS_PER_TASK: Final = 250
"""Orders per message: its transaction is short, and a message's own cost is small beside that of its orders."""


class Desk:
    """Accepts the orders of all pools, and hands them to the workers."""

    def __init__(self, store: RedisStore, gate: Gate, publisher: Publisher, settings: WorkerSettings) -> None:
        self._store = store
        self._gate = gate
        self._publisher = publisher
        self._outbox = Outbox.under_lock(publish_after=settings.publish_after)
        self._settings = settings
        self._pools: dict[str, Pool] = {}
        self._failure = ""
        self._closed: set[str] = set()
        self._dead: dict[str, int] = {}

    @property
    def reasons(self) -> list[str]:
        """Why orders may stay undecided, one sentence each."""
        dead = [
            f"orders of {sku!r} in the dead-letter set: {count:,}; 'segmented orders dead {sku}' lists them with their "
            f"reasons, and 'segmented orders replay {sku}' lets workers try again"
            for sku, count in self._dead.items()
            if count
        ]
        closed = [f"pool {sku!r} is closed: it takes no new orders" for sku in sorted(self._closed)]
        return [*dead, *closed, *([f"the last sweep ended early: {self._failure}"] if self._failure else [])]

    def pool(self, sku: str) -> Pool:
        """Return the pool with its gate."""
        if sku not in self._pools:
            self._pools[sku] = Pool(self._store, sku, gate=self._gate, outbox=self._outbox)
        return self._pools[sku]

    def submit(self, sku: str, lines: Iterable[FileOrder], book: Book) -> None:
        """Accept orders and publish them; those of an interrupted run are published again. Raises their failure."""
        accepted = []
        for handle in self.pool(sku).submit_many([line.order for line in lines]):
            if isinstance(handle, SegmentedError):
                raise handle
            order_id, outcome = handle.order_id, handle.outcome
            if outcome is None:
                accepted.append(order_id)
            elif isinstance(outcome, Settled | Decided):  # another program's, and not in the ledger any more
                number = (outcome.segment, outcome.fencing_token, outcome.sequence)
                book.decide([((sku, order_id), Outcome(outcome.state, *number))])
            else:
                self._closed.add(sku)
                book.give_up(sku, (order_id,))
        self._publisher.send(sku, accepted)

    def sweep(self, sku: str, book: Book) -> None:
        """Publish orders again that are due, and give up those that killed their workers too often."""
        own = Assignment(self._settings.queue, self._settings.step)
        report = sweep_pool(self.pool(sku).plain, self._gate, self._publisher, self._settings, assignment=own)
        book.published_again += report.published
        self._failure = report.failure
        dead = [one.order_id for one in run_sync(dead_plan(sku), self._store)]
        self._dead[sku] = len(dead)
        book.give_up(sku, dead)


class Sale:
    """A file of orders, to be sold on running servers."""

    def __init__(self, choices: Choices, file: OrdersFile, servers: Servers, console: Console, clock: Clock) -> None:
        self.book = Book(file.orders)
        self._choices = choices
        self._file = file
        self._servers = servers
        self._settings = servers.settings
        self._console = console
        self._clock = clock
        self._selling_seconds = 0.0
        self._workers_restarted = 0

    def run(self, *, since: float, before_opening: Callable[[], None] = lambda: None) -> SaleReport:
        """Sell, and check the result; the report's seconds count from `since`, by the sale's clock.

        `before_opening` is called once the servers are found suitable. Raises InvalidInput, with nothing opened, for
        unsuitable servers.
        """
        with ExitStack() as stack:
            store = stack.enter_context(RedisStore.from_url(self._settings.url.get_secret_value()))
            engine = connect(self._settings.database.get_secret_value(), pool_size=1)
            gate = stack.enter_context(Gate(engine))
            publisher = stack.enter_context(Publisher(self._settings))
            pools = {sku: Pool(store, sku) for sku in self._file.skus}
            followers = self._open(store, gate, pools, before_opening)
            if self.book.undecided:
                self._sell(Desk(store, gate, publisher, self._settings), publisher, followers)
            with self._console.status("checking every order against the ledger and the database"):
                accounts = settle_accounts(pools, gate, self.book)
        return SaleReport(
            choices=self._choices,
            book=self.book,
            accounts=accounts,
            seconds=self._clock.now() - since,
            selling_seconds=self._selling_seconds,
            workers_restarted=self._workers_restarted,
        )

    def _open(
        self, store: RedisStore, gate: Gate, pools: dict[str, Pool], before_opening: Callable[[], None]
    ) -> dict[str, Follower]:
        """Check everything that exists before the first change, then open what is missing."""
        stock, segment_count = self._choices.stock, self._choices.segment_count
        states = read_states(pools, stock=stock, segment_count=segment_count)
        for state in states.values():
            self._check_assignment(state)
        decided = {
            key: outcome
            for sku, state in states.items()
            if state is not None
            for key, outcome in read_decided(store, self._file, sku)
        }
        before_opening()
        open_sale(pools, states, gate, stock=stock, segment_count=segment_count)
        self.book.begin(decided)
        # Taken before the records are read, so that no decision falls in between.
        return {
            sku: Follower(store, sku, after=0 if state is None else state.sequence) for sku, state in states.items()
        }

    def _check_assignment(self, state: PoolState | None) -> None:
        """Raise InvalidInput for a pool that leaves its orders to other workers than those of this sale."""
        own = Assignment(self._settings.queue, self._settings.step)
        if state is not None and not own.takes(state.queue, state.step):
            named = " and ".join(
                f"{what} {name!r}" for what, name in (("queue", state.queue), ("step", state.step)) if name is not None
            )
            raise InvalidInput(
                f"pool {state.sku!r} names {named} for its orders, so this sale cannot sell them: submit them to "
                f"its own workers, or change it with 'segmented pool assign {state.sku}'"
            )

    def _sell(self, desk: Desk, publisher: Publisher, followers: dict[str, Follower]) -> None:
        since = self._clock.now()
        with Fleet(self._settings, self._choices.worker_count) as fleet:
            try:
                fleet.start()
                with Screen(self._console, self.book, self._clock) as screen:
                    self._until_decided(desk, followers, fleet, screen)
                self._selling_seconds = self._clock.now() - since
                self._workers_restarted = fleet.restarted
                if self.book.undecided and (words := "\n".join(filter(None, (*desk.reasons, fleet.tail())))):
                    self._console.print(words, markup=False, highlight=False, soft_wrap=True)
            finally:
                fleet.stop()
                with suppress(StoreError):
                    publisher.empty()
                with suppress(StoreError):  # what the workers finished before they ended
                    self.book.decide(outcome for sku in self._file.skus for outcome in followers[sku].read())

    def _until_decided(self, desk: Desk, followers: dict[str, Follower], fleet: Fleet, screen: Screen) -> None:
        book, patience = self.book, max(STUCK_SECONDS_MIN, STUCK_AFTER * self._choices.republish_after)
        changed_at = swept_at = self._clock.now()
        while not book.is_over and self._clock.now() - changed_at < patience:
            fresh = book.fresh(min(BATCH, WINDOW - book.under_way))
            for sku, lines in fresh.items():
                desk.submit(sku, lines, book)
            found = [outcome for sku in book.skus_under_way() for outcome in followers[sku].read()]
            if new := book.decide(found):
                fleet.note_decided()
            if fresh or new:
                changed_at = self._clock.now()
            else:
                time.sleep(PAUSE_SECONDS)
            if self._clock.now() - swept_at >= SWEEP_SECONDS:
                for sku in book.skus_under_way():
                    desk.sweep(sku, book)
                swept_at = self._clock.now()
            fleet.look()
            self._servers.look()
            screen.show()


def read_states(pools: Mapping[str, Pool], *, stock: int, segment_count: int) -> dict[str, PoolState | None]:
    """Read the pools that are open. Raises InvalidInput for a pool of another sale."""
    states = {sku: state_of(pool) for sku, pool in pools.items()}
    for state in states.values():
        if state is not None:
            _check_pool(state, stock, segment_count)
    return states


def open_sale(
    pools: Mapping[str, Pool], states: Mapping[str, PoolState | None], gate: Gate, *, stock: int, segment_count: int
) -> None:
    """Open a pool per sku with its database rows, unless they are open. Raises InvalidInput, with nothing opened.

    Rows first, so that an existing pool always has its gate. The next run completes a run that dies in between.
    """
    gate.create()
    for sku, state in states.items():
        _check_rows(sku, state, gate, stock, segment_count)
    for pool in pools.values():
        opened = open_rows(pool, gate, Opening(stock=stock, segments=segment_count, gated=True))
        _check_pool(opened.state, stock, segment_count)


def _check_pool(state: PoolState, stock: int, segment_count: int) -> None:
    if (state.opened, state.segment_count) != (stock, segment_count):
        raise InvalidInput(
            f"pool {state.sku!r} is open with {stock_said(state.opened, state.segment_count)}, "
            f"not with {stock_said(stock, segment_count)}"
        )
    if not state.gated:
        raise InvalidInput(f"pool {state.sku!r} {UNGATED}")


def _check_rows(sku: str, state: PoolState | None, gate: Gate, stock: int, segment_count: int) -> None:
    totals = gate.totals(sku)
    if not totals.segments:
        if state is not None:
            raise InvalidInput(
                f"pool {sku!r} is open, but the order database has no rows for it: name the database it was opened "
                "with; if that was the temporary one of an earlier sale, close the pool and sell under another sku"
            )
        return
    if state is None and (totals.sold or gate.stocking.opened_epoch(sku) is not None):
        units = f"{totals.sold} {plural(totals.sold, 'unit')}"
        raise InvalidInput(
            f"the order database knows pool {sku!r} as open, with {units} sold, but "
            "the stock's server has no such pool: name the server it was opened on"
        )
    # There may be more rows than the pool shows: of removed segments, and of an unfinished restock.
    is_same = (totals.quota, len(totals.segments)) == (stock, segment_count)
    is_enough = state is not None and totals.quota >= state.stocked and len(totals.segments) >= segment_count
    if not (is_same or is_enough):
        raise InvalidInput(
            f"the order database has rows for {sku!r} with {stock_said(totals.quota, len(totals.segments))}, "
            f"not with {stock_said(stock, segment_count)}"
        )


class Follower:
    """Reads one pool's ledger from where it last stopped."""

    def __init__(self, store: RedisStore, sku: str, *, after: int) -> None:
        self._store = store
        self._sku = sku
        self._after = after

    def read(self) -> Iterator[tuple[OrderKey, Outcome]]:
        """Yield the outcomes that were written since the last call."""
        while True:
            entries = self._store.execute(op.ReadLedger(self._sku, self._after, PAGE))
            if not entries:
                return
            self._after = entries[-1].sequence
            yield from (found for entry in entries if (found := _outcome(self._sku, entry)))


def read_decided(store: RedisStore, file: OrdersFile, sku: str) -> Iterator[tuple[OrderKey, Outcome]]:
    """Yield the file's orders that have an outcome. Raises InvalidInput if the pool knows one with other content."""
    lines = [line for line in file.orders.values() if line.sku == sku]
    for first in range(0, len(lines), PAGE):
        page = lines[first : first + PAGE]
        records = store.execute(op.ReadOrders(sku, tuple(line.order.order_id for line in page)))
        for line, record in zip(page, records, strict=True):
            if record is None:
                continue
            _check_same(file, line, record)
            if record.state in DECIDED:
                segment = record.segment if record.segment >= 0 else None
                yield line.key, Outcome(record.state, segment, record.fencing_token, record.sequence)


def _outcome(sku: str, entry: LedgerEntry) -> tuple[OrderKey, Outcome] | None:
    state = DECIDED.get(entry.kind)
    if state is None or entry.order_id is None:
        return None
    return (sku, entry.order_id), Outcome(state, entry.segment, entry.fencing_token, entry.sequence)


def _check_same(file: OrdersFile, line: FileOrder, record: OrderRecord) -> None:
    if not record.is_of(line.order):
        here = f"quantity {line.order.quantity} and customer {line.order.customer_id!r}"
        there = f"quantity {record.asked} and customer {record.customer_id!r}"
        order_id = line.order.order_id
        message = f"{file.path}, line {line.line}: order_id {order_id!r} has {here}, but the pool knows it with {there}"
        raise InvalidInput(message)


@dataclass(slots=True)
class _Worker:
    name: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def tail(self) -> str:
        """Return the last lines that it wrote."""
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - TAIL_BYTES))
        lines = [line.rstrip() for line in self.log.read().decode(errors="replace").splitlines()]
        return "\n".join([line for line in lines if line][-TAIL_LINES:])


class Fleet:
    """A number of workers that run from `start` to the end of the `with` statement."""

    def __init__(self, settings: WorkerSettings, count: int) -> None:
        self.restarted = 0
        self._environment = {**os.environ, **settings.environment()}
        self._count = count
        self._workers: list[_Worker] = []
        self._deaths = 0
        self._has_decided = False

    @property
    def pids(self) -> list[int]:
        """The process ids, in the order of the workers' numbers."""
        return [worker.process.pid for worker in self._workers]

    def start(self) -> None:
        """Start all workers."""
        for number in range(1, self._count + 1):
            self._workers.append(self._start(f"worker {number}"))

    def note_decided(self) -> None:
        """Reset the count of deaths, since the workers make progress."""
        self._has_decided = True
        self._deaths = 0

    def look(self) -> None:
        """Restart dead workers. Raises SegmentedError, with their last words, if they die too often."""
        for index, worker in enumerate(self._workers):
            code = worker.process.poll()
            if code is None:
                continue
            self._deaths += 1
            if (code >= 0 and not self._has_decided) or self._deaths > DEATHS_MAX:
                ended = f"ended with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
                raise SegmentedError(f"{worker.name} {ended}; its last output:\n{worker.tail()}")
            self._bury(worker)
            self._workers[index] = self._start(worker.name)
            self.restarted += 1

    def tail(self) -> str:
        """Return the last words of the workers that wrote anything."""
        return "\n".join(f"{worker.name}:\n{words}" for worker in self._workers if (words := worker.tail()))

    def stop(self) -> None:
        """Let each worker finish its current order, then end it, within a time limit. A second call does nothing."""
        deadline = time.monotonic() + STOP_SECONDS
        for worker in self._workers:
            _signal(worker.process, signal.SIGTERM)
        for worker in self._workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            self._bury(worker)
        self._workers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, name: str) -> _Worker:
        log = tempfile.TemporaryFile()  # noqa: SIM115  # stays open as long as its worker
        process = subprocess.Popen(  # noqa: S603  # our own module, run by our own interpreter
            [*COMMAND, "--hostname", f"{name.replace(' ', '-')}.{os.getpid()}@%h"],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        return _Worker(name, process, log)

    def _bury(self, worker: _Worker) -> None:
        """End the remaining processes, including children, and close their files and pipes."""
        with suppress(ProcessLookupError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        if worker.process.stdin is not None:
            worker.process.stdin.close()
        worker.log.close()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)


class Publisher:
    """One connection to the broker."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Connect. Raises StoreUnavailable if no broker answers, InvalidInput for one that refuses the account."""
        self._where = masked(settings.broker_url)
        self._queue = settings.queue
        self._app = Celery("segmented-sell", set_as_current=False)
        self._app.conf.update(celery_settings(settings))
        try:
            self._connection = self._app.connection_for_write()
            self._connection.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS)
            self._producer = self._app.amqp.Producer(self._connection)
        except KeyError as error:
            raise InvalidInput(f"{self._where} is not a broker that Celery knows") from error
        except Exception as error:  # each transport has its own errors
            message = f"no broker answers at {self._where}: {error}"
            is_refused = isinstance(error.__cause__, (AuthenticationError, AccessRefused))
            raise (InvalidInput if is_refused else StoreUnavailable)(message) from error
        self._errors: tuple[type[BaseException], ...] = (
            *(KombuError, OSError),
            *self._connection.connection_errors,
            *self._connection.channel_errors,
        )

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        """Publish before returning, in as many envelopes as needed. Raises StoreUnavailable; sent ones stay sent."""
        with self._translated():
            for first in range(0, len(order_ids), ORDERS_PER_TASK):
                body = Envelope(sku, tuple(order_ids[first : first + ORDERS_PER_TASK])).body()
                self._app.send_task(
                    TASK, (body,), producer=self._producer, queue=self._queue, argsrepr=sku, kwargsrepr=""
                )

    def room(self) -> int:
        """Return how many more envelopes the broker should get from the sweep. Raises StoreUnavailable."""
        return max(1, BACKLOG_MAX - waiting(self._app, TASK))

    def empty(self) -> None:
        """Delete the rest of the queue: repeats of decided orders, or orders that a second run publishes."""
        with self._translated():
            self._app.amqp.queues[self._queue](self._connection.default_channel).purge()

    def close(self) -> None:
        """Disconnect."""
        self._connection.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise StoreUnavailable(f"the broker at {self._where} did not answer: {error}") from error

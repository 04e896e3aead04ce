"""Strategies over a pool: their base, the one without a lock around the slow step, and those with segment locks.

The base opens the pool, and reads the verdict from ledger and database. A pool whose critical section commits is gated:
the order database decides. Otherwise the pool alone does. Refusals are checked against the ledger: each has the number
of the change after which it was decided.

Without a lock, one script reserves the units, and their owner may take as long as the hold lasts. It is the better
choice if the slow step needs no mutual exclusion. With commits it has as many rows in the database as segments, which
is its best setting: with one row the commits would queue.

K segments, each with its own lock: an order is processed under the lock of any free segment. One lock for the whole
stock: the same code with one segment.

Batches: one lock, one slow step and one commit for B orders. The first order of a batch takes a segment with units and
lock in one step. A second step reserves the units of the others from any segments. After the slow step a third step
confirms all of them, which frees the segment. If the critical section commits, the whole batch is stored in one
transaction before that.

The whole path through Celery: a buyer submits an order, a message queues it for a worker, and the buyer waits. Two real
worker processes process one message after another; the broker is on its own server. The worker takes the units under
the lock of a segment and runs the slow step once per order, whatever the size of the message. So the workers limit the
rate: two orders are in the slow step at once, and the other buyers wait in the queue.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, cast

from celery import Celery
from sqlalchemy import delete

from bench.micro.workers import PROCESSES, BenchProcesses, environment
from bench.sections import Section
from bench.sizing import oversold
from bench.strategies.base import (
    LEASE_SECONDS,
    WAIT_SECONDS,
    GaveUp,
    Guarantees,
    Refused,
    RefusedByGate,
    Sold,
    Strategy,
    Verdict,
)
from bench.strategies.counted import CountingStore
from segmented import protocol as op
from segmented.celery.messages import TASK, Envelope
from segmented.celery.settings import kombu_url
from segmented.errors import InvalidInput, SegmentedError
from segmented.keys import shard_keys
from segmented.models import AlreadyOpen, Decided, Order, Reserved, Restocked, Settled, SoldOut
from segmented.orders import Gate
from segmented.orders.answers import Confirmed
from segmented.orders.deciding import Claim
from segmented.orders.sale import finish_reserved, take_order
from segmented.orders.tables import orders, segments
from segmented.plans import run_sync
from segmented.protocol.wire import text
from segmented.servers import ValkeyServer
from segmented.stock import EnvelopePublisher, Grant, LedgerFold, Outbox, Pool
from segmented.stock.plans import settle_many_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import ClassVar

    from bench.sections import Kind
    from bench.strategies.base import Answer, StrategyContext
    from segmented.models import LedgerEntry
    from segmented.models.submitted import BegunOrder
    from segmented.plans.drivers import Store

PAGE: Final = 1_000
RETURNED: Final = "returned-"
"""Prefix of the restock id of a cancelled order."""


class PooledStrategy(Strategy):
    """Sells from a pool."""

    has_segments: ClassVar[bool] = True
    has_skus: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = Guarantees(
        one_effect_per_order=True,
        section="one a segment",
        fencing=True,
        after_a_crash="units come back when the hold lapses, the lock when its lease does",
    )
    pool: Pool

    def __init__(self, context: StrategyContext) -> None:
        """Create a strategy without a sale."""
        super().__init__(context)
        self.gate = Gate(context.engine) if context.section.commits and context.engine is not None else None
        self.store = CountingStore(context.store)
        self._stock = 0

    def open(self, sku: str, stock: int) -> None:
        """Open the pool, and the gate with the same units per segment."""
        self.pool = Pool(self.store, sku, ttl=LEASE_SECONDS)
        self._stock = stock
        opened = self.pool.open(stock=stock, segments=self.segments, gated=self.gate is not None)
        if isinstance(opened, AlreadyOpen):
            raise InvalidInput(f"pool {sku!r} is there already")
        if self.gate is not None:
            self.gate.open(sku, opened.state.stock, epoch=opened.state.epoch)

    def join(self, sku: str, stock: int) -> None:
        """Join the open pool."""
        self.pool = Pool(self.context.store, sku, ttl=LEASE_SECONDS)
        self._stock = stock

    @classmethod
    def require_cancel(cls, *, commits: bool) -> None:
        """Raise InvalidInput for a gated pool: the order database's confirmations are final."""
        if commits:
            message = f"{cls.name} with commits cannot take a sold order back: the order database has confirmed it"
            raise InvalidInput(message)

    @classmethod
    def require_restock(cls, *, commits: bool) -> None:
        """Raise InvalidInput for a gated pool: its restocks go through the order database."""
        if commits:
            message = f"{cls.name} with commits takes no units in while it sells: its rows would have to grow first"
            raise InvalidInput(message)

    def cancel(self, order: Order) -> None:
        """Restock its units under the order's name, since a confirmed order is final."""
        self._take_in(order.quantity, f"{RETURNED}{order.order_id}")

    def restock(self, units: int) -> None:
        """Add units, once."""
        self._take_in(units, "restock")

    def _take_in(self, units: int, restock_id: str) -> None:
        answer = self.pool.restock(units, restock_id=restock_id)
        if not isinstance(answer, Restocked):
            raise SegmentedError(f"{units} unit{' was' if units == 1 else 's were'} not taken in: {answer}")

    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Fold the ledger, query the database, and audit."""
        fold = LedgerFold()
        sold_ids: dict[str, int] = {}
        fold.apply(_noting_sold(ledger_of(self.context.store, self.pool.sku), sold_ids))
        returned = self._returned(sold_ids)
        report = self.pool.audit()
        in_sql = None if self.gate is None else self.gate.confirmed_units(self.pool.sku)
        return Verdict(
            sold=report.state.confirmed - returned,
            available=report.state.available,
            sold_in_sql=in_sql,
            oversold_in_redis=report.oversold,
            oversold_in_sql=0 if in_sql is None else oversold(in_sql, self._stock),
            refused_wrongly=report.refused_wrongly + count_wrong(refusals, fold),
            audit="clean" if report.is_clean else "; ".join(str(drift) for drift in report.drift),
            sold_ids=frozenset(sold_ids),
            left=self.free_by_segment(),
        )

    def _returned(self, sold: dict[str, int]) -> int:
        """Return the units of cancelled orders, and remove those orders from `sold`."""
        gone = [one for one in sold if one.startswith(RETURNED)]
        units = sum(sold.pop(one) for one in gone)
        for one in gone:
            sold.pop(one.removeprefix(RETURNED), None)
        return units

    def free_by_segment(self) -> tuple[int, ...]:
        """Read the hash of stock."""
        found = self.context.store.client.hgetall(shard_keys(self.pool.sku).stock)
        free = {int(text(segment)): int(text(units)) for segment, units in found.items()}
        return tuple(free.get(segment, 0) for segment in range(self.segments))

    def clear(self) -> None:
        """Remove the pool's keys and the gate's rows."""
        self.context.store.client.unlink(*shard_keys(self.pool.sku).listed())
        self.context.store.execute(op.DropPool(self.pool.sku))
        if self.gate is not None and self.context.engine is not None:
            with self.context.engine.begin() as connection:
                for table in (orders, segments):
                    connection.execute(delete(table).where(table.c.sku == self.pool.sku))


def ledger_of(store: Store, sku: str) -> Iterator[LedgerEntry]:
    """Yield the ledger of a pool."""
    after = 0
    while page := store.execute(op.ReadLedger(sku, after, PAGE)):
        yield from page
        after = page[-1].sequence


def _noting_sold(entries: Iterator[LedgerEntry], units: dict[str, int]) -> Iterator[LedgerEntry]:
    """Collect sold orders, and units restocked under their names."""
    for entry in entries:
        order_id = entry.order_id or ""
        if entry.kind == "confirmed" or (entry.kind == "restocked" and order_id.startswith(RETURNED)):
            units[order_id] = entry.quantity
        yield entry


def count_wrong(refusals: Iterable[Refused], fold: LedgerFold) -> int:
    """Count the refusals that were decided while enough units were free."""
    return sum(fold.covers(refusal.quantity, refusal.sequence) for refusal in refusals)


class LockFree(PooledStrategy):
    """Reserve in one script, then the slow step outside of any lock, then confirm."""

    name: ClassVar[str] = "lock-free"
    summary: ClassVar[str] = "reserve in one script, the slow step outside of any lock, confirm"
    is_parallel: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(
        PooledStrategy.guarantees,
        section="unlimited",
        fencing=False,
        after_a_crash="units come back when the hold lapses",
    )

    def buy(self, order: Order) -> Answer:
        """Reserve, run the slow step, store the order if it commits, confirm."""
        answer = self.pool.reserve(order)
        if isinstance(answer, SoldOut):
            return Refused(answer.sequence, answer.quantity)
        if not isinstance(answer, Reserved):
            raise SegmentedError(f"order {order.order_id!r}: {answer.describe()}")
        granted_at = time.monotonic()
        self.context.section.run()
        if self.gate is None:
            self.pool.confirm(order.order_id)
            return Sold(granted_at, time.monotonic(), attempts=0)
        settled = finish_reserved(self.pool, self.gate, order, answer)
        return Sold(granted_at, time.monotonic(), attempts=0) if settled.state == "confirmed" else RefusedByGate()


class SegmentLocks(PooledStrategy):
    """A pool of K segments."""

    name: ClassVar[str] = "segment-locks"
    summary: ClassVar[str] = "K segments of a pool, each with its lock; any free one serves"

    def buy(self, order: Order) -> Answer:
        """Wait for a segment, run the slow step, store the order if it commits, confirm."""
        if self.gate is not None:
            return self._buy_gated(order, self.gate)
        grant = self.pool.grant(order)
        if isinstance(grant, SoldOut):
            return Refused(grant.sequence, grant.quantity)
        if not isinstance(grant, Grant):
            raise SegmentedError(f"order {order.order_id!r}: {grant.describe()}")
        granted_at = time.monotonic()
        self.context.section.run()
        grant.confirm()
        return Sold(granted_at, time.monotonic(), grant.segment, self.store.attempts())

    def _buy_gated(self, order: Order, gate: Gate) -> Answer:
        granted_at, segment = 0.0, 0

        def body(grant: Grant) -> None:
            nonlocal granted_at, segment
            granted_at, segment = time.monotonic(), grant.segment
            self.context.section.run()

        answer = take_order(self.pool, gate, order, timeout=None, body=body)
        match answer:
            case Settled():
                return Sold(granted_at, time.monotonic(), segment, self.store.attempts())
            case Decided():
                return RefusedByGate()
            case SoldOut(quantity=quantity, sequence=sequence):
                return Refused(sequence, quantity)
        raise SegmentedError(f"order {order.order_id!r}: {answer.describe()}")


class GlobalLock(SegmentLocks):
    """A pool of one segment."""

    name: ClassVar[str] = "global-lock"
    summary: ClassVar[str] = "one lock for the whole stock: a pool of one segment"
    has_segments: ClassVar[bool] = False


class SegmentBatches(SegmentLocks):
    """A pool of K segments that sells in batches."""

    name: ClassVar[str] = "segment-batches"
    summary: ClassVar[str] = "K segments of a pool, each with its lock; B orders under one hold of it"
    has_batches: ClassVar[bool] = True

    def buy_batch(self, orders: Sequence[Order]) -> list[Answer]:
        """Wait for a segment, take all units, run the slow step once, confirm all."""
        first, *others = orders
        grant = self.pool.grant(first)
        if isinstance(grant, SoldOut):
            return self._none(grant, orders)
        if not isinstance(grant, Grant):
            raise SegmentedError(f"order {first.order_id!r}: {grant.describe()}")
        granted_at = time.monotonic()  # the lock is held from here, so reserving the others' units counts
        taken = self.pool.reserve_many(others) if others else []
        self.context.section.run()
        fenced = Claim(first, self.pool.sku, grant.segment, grant.epoch, grant.fencing_token)
        confirmed = self._confirmed(fenced, [one for one in taken if isinstance(one, Reserved)])
        # one shared value: it never changes
        answer = Sold(granted_at, time.monotonic(), grant.segment, self.store.attempts())
        answers: list[Answer] = [answer if first.order_id in confirmed else RefusedByGate()]
        sequence = 0
        for one in taken:
            if isinstance(one, Reserved):
                sequence = one.sequence
                answers.append(answer if one.order_id in confirmed else RefusedByGate())
            elif isinstance(one, SoldOut):
                # it names the change before the call, but was decided after the served orders of the same call
                answers.append(Refused(max(one.sequence, sequence), one.quantity))
            elif isinstance(one, SegmentedError):
                raise one
            else:
                raise SegmentedError(f"order {one.order_id!r}: {one.describe()}")
        return answers

    def _none(self, refusal: SoldOut, orders: Sequence[Order]) -> list[Answer]:
        """Refuse all orders by one refusal: too few units are left for any order of that quantity."""
        if any(order.quantity < refusal.quantity for order in orders):
            first, *others = orders
            return [Refused(refusal.sequence, first.quantity), *self.buy_batch(others)]
        return [Refused(refusal.sequence, order.quantity) for order in orders]

    def _confirmed(self, fenced: Claim, reserved: Sequence[Reserved]) -> set[str]:
        """Store the batch if it commits, confirm it, and thereby free the segment. Return the final orders."""
        ids = [fenced.order.order_id, *(one.order_id for one in reserved)]
        if self.gate is not None:
            sku = self.pool.sku
            claims = [Claim(Order(one.order_id, one.quantity), sku, one.segment, one.epoch, None) for one in reserved]
            stored = self.gate.confirm_many([fenced, *claims])
            ids = [one for one, answer in zip(ids, stored, strict=True) if isinstance(answer, Confirmed)]
        operation = op.SettleMany(self.pool.sku, "confirmed", tuple(ids), decided=self.gate is not None)
        settled = run_sync(settle_many_plan(operation), self.pool.store)
        return {one.order_id for one in settled if isinstance(one, Settled) and one.state == "confirmed"}


# --- the whole path through Celery ---

KIND: Final = "BENCH_SECTION_KIND"
MILLISECONDS: Final = "BENCH_SECTION_MS"
STEP: Final = "bench.strategies.pooled:step"
QUEUE = "segmented"
"""The queue that workers serve by default."""


def told(section: Section) -> dict[str, str]:
    """Return the environment variables that configure the step."""
    return {KIND: section.kind, MILLISECONDS: str(section.ms), "SEGMENTED_STEP": STEP}


@cache
def _section() -> Section:
    return Section(cast("Kind", os.environ[KIND]), float(os.environ[MILLISECONDS]))


def step(_: BegunOrder) -> None:
    """Spend the time."""
    _section().run()


class CeleryOne(PooledStrategy):
    """One message per order."""

    name: ClassVar[str] = "celery-one"
    summary: ClassVar[str] = "orders submitted to two Celery workers, a message each; segment locks in the workers"
    envelope_max: ClassVar[int] = 1
    has_skus: ClassVar[bool] = False  # each object starts workers

    def __init__(self, context: StrategyContext) -> None:
        """Create a strategy without workers; `open` starts them."""
        super().__init__(context)
        self._started = ExitStack()

    @property
    def lanes(self) -> int:
        """The number of workers, or fewer if there are fewer segments or buyers."""
        return min(self.segments, self.context.buyers, PROCESSES)

    def open(self, sku: str, stock: int) -> None:
        """Open the pool, start broker and workers, and wait until they take messages."""
        super().open(sku, stock)
        stack = self._started
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-bench-")))
        broker = stack.enter_context(ValkeyServer.start()).url
        engine = self.context.engine
        database = f"sqlite:///{folder}/no-orders.db"
        if engine is not None:
            database = engine.url.render_as_string(hide_password=False)
        given = environment(self.context.url, broker, database) | told(self.context.section)
        stack.enter_context(closing(BenchProcesses(given, folder))).start_workers()
        app = stack.enter_context(Celery("bench-buyers", broker=kombu_url(broker), set_as_current=False))

        def send(sku: str, order_ids: Sequence[str]) -> None:
            body = Envelope(sku, tuple(order_ids)).body()
            app.send_task(TASK, args=(body,), queue=QUEUE, ignore_result=True)

        publisher = stack.enter_context(EnvelopePublisher(send, envelope_max=self.envelope_max))
        self.pool.outbox = Outbox(publisher, "in the worker")

    def buy(self, order: Order) -> Answer:
        """Submit the order, and wait for its outcome."""
        outcome = self.pool.submit(order).wait(WAIT_SECONDS)
        match outcome:
            case Settled(state="confirmed"):
                return Sold(0.0, 0.0, outcome.segment)  # the buyer does not see when its slow step begins
            case Decided(state="refused") | SoldOut():
                return Refused(outcome.sequence, order.quantity)
            case None:
                return GaveUp(f"no worker had finished it within {WAIT_SECONDS:g} s")
        return GaveUp(f"order {order.order_id!r}: {outcome}")

    def close(self) -> None:
        """Stop the workers and the broker."""
        self._started.close()


class CeleryBatched(CeleryOne):
    """Orders submitted at about the same time share a message, a segment's lock and a transaction."""

    name: ClassVar[str] = "celery-batched"
    summary: ClassVar[str] = "orders submitted to two Celery workers, up to 100 a message; segment locks in the workers"
    envelope_max: ClassVar[int] = 100

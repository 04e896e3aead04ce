"""The processes of a trial: buyers, and workers where orders are submitted.

A buyer has a few threads that buy one unit after the other and note each answer in the journal. It keeps one store for
its whole life, as a shop does, so it remembers what it has seen. A worker asks the outbox for accepted orders, and
finishes them in envelopes. It stands in for a Celery worker: the sweep that publishes orders again is its only source,
so there is no broker whose messages a fault could lose. `segmented torture orders` kills Celery workers.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from segmented import protocol as op
from segmented.errors import AlreadySettled, PoolFrozen, PoolMissing, PoolVanished, SegmentedError
from segmented.models import Decided, Order, Refusal, Settled, SoldOut
from segmented.models.submitted import BegunOrder, Dead, Swept
from segmented.orders import Gate, WorkTerms, connect, take_envelope
from segmented.orders.sale import take_order
from segmented.stock import Grant, Pool
from segmented.stock.outbox import Outbox
from segmented.stores.redis import RedisStore
from tests.torture.durability.journal import JournalWriter
from tests.torture.event_log import LogWriter
from tests.torture.supervisor import AGAIN_SECONDS, connected

SKU: Final = "durable"
SEGMENTS: Final = 8
THREADS: Final = 2
TTL: Final = 1.0
HOLD: Final = 2.0
PACE_SECONDS: Final = 0.004
"""Pause after each order, so that a sale lasts until its fault."""
TAKE_SECONDS: Final = 1.0
KNOWN_SECONDS: Final = 6.0
"""Time for the outcome of an order to become known. A killed call's lease may outlast it, if a clock is behind."""
OUTBOX: Final = Outbox(publish_after=0.001)
"""The workers of a trial ask for orders all the time, so there is no broker."""
LOST: Final = (PoolFrozen, PoolVanished, PoolMissing)
"""The errors by which a process learns that changes are lost."""
TERMS: Final = WorkTerms(ttl=0.5, hold=2.0, work=0.5)
"""A killed worker's orders are another's after half a second."""
STEP_SECONDS: Final = 0.005
"""Duration of the work on an order, so that a kill finds orders that are begun and not finished."""
ENVELOPE_MAX: Final = 4
PUBLISHED_AGAIN_MS: Final = (300, 1_000)
BEGUN_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Assignment:
    """The pool that one process buys from, and its gate."""

    process: int
    url: str
    database: str | None
    """The order database of a gated pool."""
    journal: str
    is_submitting: bool = False
    """Whether orders are submitted, and workers finish them."""


def shop_pool(store: RedisStore) -> Pool:
    """Return the pool as all processes of a trial use it."""
    return Pool(store, SKU, ttl=TTL, hold=HOLD, outbox=OUTBOX)


@contextmanager
def joined(assignment: Assignment) -> Iterator[tuple[Pool, Gate | None]]:
    """Connect a process of a trial."""
    logging.getLogger("segmented").addHandler(logging.NullHandler())  # the journal says what was noticed
    with ExitStack() as stack:
        store = stack.enter_context(connected(assignment.url))
        gate = None if assignment.database is None else stack.enter_context(Gate(connect(assignment.database)))
        yield shop_pool(store), gate


def take(pool: Pool, gate: Gate | None, order_id: str) -> Settled | Refusal:
    """Buy one unit, with the order database if there is one. Safe to repeat under the same id."""
    if gate is not None:
        return take_order(pool, gate, Order(order_id), timeout=TAKE_SECONDS)
    grant = pool.grant(order_id, timeout=TAKE_SECONDS, holder_id=f"holder of {order_id}")
    return grant.confirm() if isinstance(grant, Grant) else grant


def submit(pool: Pool, order_id: str) -> Settled | Refusal | None:
    """Submit an order of one unit, and return its outcome; None if no worker has finished it yet. Safe to repeat."""
    outcome = pool.submit(order_id).wait(TAKE_SECONDS)
    return None if isinstance(outcome, Dead) else outcome


def be_buyer(_: Connection, assignment: Assignment) -> None:
    """Buy until everything is sold. Runs in a process of its own."""
    with joined(assignment) as (pool, gate):
        log = LogWriter(Path(assignment.journal))
        names = [f"{assignment.process}.{thread}" for thread in range(THREADS)]
        buy = partial(submit, pool) if assignment.is_submitting else partial(take, pool, gate)
        threads = [threading.Thread(target=_buy, args=(buy, JournalWriter(log, name), name)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _buy(buy: Callable[[str], Settled | Refusal | None], journal: JournalWriter, name: str) -> None:
    for number in count():
        order_id = f"{name}-{number}"
        if not _settle(buy, journal, order_id):
            journal.note("over")
            return
        time.sleep(PACE_SECONDS)


def _settle(buy: Callable[[str], Settled | Refusal | None], journal: JournalWriter, order_id: str) -> bool:
    """Try an order until its outcome is known; return False if everything is sold."""
    until: float | None = None
    while True:
        began = time.monotonic()
        try:
            answer = buy(order_id)
        except AlreadySettled:  # its hold ended first
            return True
        except LOST as error:
            journal.note("noticed", type(error).__name__)
        except SegmentedError as error:
            journal.note("failed", type(error).__name__, round(1_000 * (time.monotonic() - began)))
        else:
            if isinstance(answer, SoldOut):
                return False
            if isinstance(answer, Settled | Decided):
                if answer.state == "confirmed":
                    journal.note("ack", order_id, answer.quantity)
                return True
            until = until or time.monotonic() + KNOWN_SECONDS  # its segment is still locked by a call that was lost
            if time.monotonic() > until:
                journal.note("left", order_id)
                return True
        time.sleep(AGAIN_SECONDS)


def be_worker(_: Connection, assignment: Assignment) -> None:
    """Finish orders until killed. Runs in a process of its own."""
    with joined(assignment) as (pool, gate):
        sweep = op.SweepOutbox(SKU, ENVELOPE_MAX, None, *PUBLISHED_AGAIN_MS, hold_ms=TERMS.hold_ms, begun_max=BEGUN_MAX)
        while True:
            due: list[str] = []
            with suppress(SegmentedError):  # the server is away, or the pool is frozen
                swept = pool.store.execute(sweep)
                due = [order_id for order_id, _ in swept.due] if isinstance(swept, Swept) else []
                take_envelope(pool, due, gate=gate, step=_work, terms=TERMS)
            if not due:
                time.sleep(AGAIN_SECONDS / 4)


def _work(_: BegunOrder) -> None:
    time.sleep(STEP_SECONDS)

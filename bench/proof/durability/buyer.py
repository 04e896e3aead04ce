"""A buying process: a few threads that buy one unit after the other and note each answer in the journal.

The process keeps one store for its whole life, as a shop does, so it remembers what it has seen.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.proof.durability.journal import JournalWriter
from bench.proof.orders_torture.event_log import LogWriter
from bench.proof.processes import AGAIN_SECONDS, connected, end_with_starter
from segmented.errors import AlreadySettled, PoolFrozen, PoolMissing, PoolVanished, SegmentedError
from segmented.models import Decided, Order, Settled, SoldOut
from segmented.models.submitted import Dead
from segmented.orders import Gate, connect, take_order
from segmented.stock import Grant, Pool
from segmented.stock.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.models import Refusal
    from segmented.stores.redis import RedisStore

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
    """Connect a process of a trial, which ends with its starter."""
    end_with_starter()
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


def be_buyer(assignment: Assignment) -> None:
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
            journal.over()
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
            journal.noticed(error)
        except SegmentedError as error:
            journal.failed(error, time.monotonic() - began)
        else:
            if isinstance(answer, SoldOut):
                return False
            if isinstance(answer, Settled | Decided):
                if answer.state == "confirmed":
                    journal.ack(order_id, answer.quantity)
                return True
            until = until or time.monotonic() + KNOWN_SECONDS  # its segment is still locked by a call that was lost
            if time.monotonic() > until:
                journal.left(order_id)
                return True
        time.sleep(AGAIN_SECONDS)

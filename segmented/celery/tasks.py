"""The tasks, each one library call per order. An order may arrive twice, also concurrently, and has one effect."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from celery import Celery, Task, shared_task

from segmented import protocol as op
from segmented.celery.apps import TASK_OPTIONS
from segmented.celery.connections import connections
from segmented.celery.messages import APPS_MAX, TASK, Envelope, assignment_of, keep, read_envelope, refuse, text_of
from segmented.celery.settings import settings
from segmented.errors import (
    AnotherDatabase,
    AssignedElsewhere,
    DatabaseUnavailable,
    InvalidInput,
    NoSegmentFree,
    OrderInHand,
    PoolFrozen,
    PoolMissing,
    PoolUnverified,
    SegmentedError,
    ShardVanished,
    StoreUnavailable,
)
from segmented.events.hub import sku_label
from segmented.events.traces import CURRENT, HEADER
from segmented.models import Busy, Decided, Order, Refusal, Settled, checked_pool_name
from segmented.models.submitted import BegunOrder, one_line
from segmented.orders import WorkTerms, envelopes, sale
from segmented.orders.envelopes import checked_step
from segmented.process import Guard

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from segmented.orders.confirming import StoreWith
    from segmented.orders.outcomes import OnOutcome

log = logging.getLogger(__name__)
RETRIES_MAX: Final = 5
RETRY_SECONDS_MAX: Final = 10.0
PUT_OFF: Final = (OrderInHand, NoSegmentFree, PoolFrozen, PoolUnverified, StoreUnavailable, DatabaseUnavailable)
"""Errors that a retry may fix. After the last retry the order is undecided, and its units, if any, stay reserved."""
UNREADABLE: Final = (InvalidInput, PoolMissing, ShardVanished)
"""Errors of a message that names nothing that is there."""


@shared_task(
    bind=True,
    name="segmented.take_order",
    max_retries=RETRIES_MAX,
    throws=(AssignedElsewhere,),  # logged once a pool by `refuse`, without a traceback for each message
    **TASK_OPTIONS,
)
def take_order(self: Task[Any, Any], sku: str, order_id: str, quantity: int, customer_id: str | None = None) -> str:
    """Grant a segment, store the order in the database under its lock, confirm. Returns the order's state.

    A refusal is kept, so that a second delivery gets the same answer. The task fails for an order that cannot be, and
    its message is kept in the dead-letter set. So it does in a pool that names a step, which this task does not run, or
    the queue of other workers.
    """
    try:
        own = replace(assignment_of(self.app), step=None)
        connections().store.execute(op.CheckAssignment(checked_pool_name(sku), own))
        return _take(sku, Order(order_id, quantity, customer_id))
    except PUT_OFF as error:
        raise self.retry(exc=error, countdown=_pause(self, error)) from error
    except AssignedElsewhere as error:
        refuse(error)
        keep(connections().store, text_of((sku, order_id, quantity, customer_id), {}), str(error), is_said=True)
        raise
    except UNREADABLE as error:
        keep(connections().store, text_of((sku, order_id, quantity, customer_id), {}), str(error))
        raise


@shared_task(bind=True, name=TASK, typing=False, **TASK_OPTIONS)
def take_envelope(self: Task[Any, Any], *parts: object, **passed_on: object) -> str:
    """Finish the submitted orders that a message names, each once, however often it is named. Returns text.

    A message that cannot be read is kept in the dead-letter set, also if it cannot be read in part: then the other
    orders are finished. Orders that cannot be finished now are in the outbox: Celery does not retry the task, since it
    would hold it in memory meanwhile. So are those of a pool that leaves them to other workers. The text has the number
    of orders of each outcome, for Celery's log.
    """
    shared = connections()
    try:
        envelope = read_envelope(parts, passed_on)
    except UNREADABLE as error:
        keep(shared.store, text_of(parts, passed_on), str(error))
        return ""
    try:
        if envelope.wrong:
            keep(shared.store, text_of(parts, passed_on), envelope.wrong)
        if not envelope.order_ids:
            return ""
        pool = shared.pool(envelope.sku)
        terms = _terms(self.app)
        gate = shared.gate if pool.is_gated() else None
        if gate is not None:  # before the order database is asked, which may be another one
            shared.store.execute(op.CheckAssignment(pool.sku, terms.assignment))
        beside = None if gate is None else store_with()
        with _span(self, envelope):
            report = envelopes.take_envelope(
                pool, envelope.order_ids, gate=gate, step=step(), store_with=beside, terms=terms
            )
    except AssignedElsewhere as error:
        refuse(error)
        return ""
    except (StoreUnavailable, DatabaseUnavailable, PoolFrozen, PoolUnverified, AnotherDatabase) as error:
        repeated.warn(envelope.sku, str(error), len(envelope.order_ids))
        return ""
    except UNREADABLE as error:
        keep(shared.store, text_of(parts, passed_on), str(error))
        return ""
    if report.alone:  # they were republished in smaller envelopes, or will be
        log.info("%d orders of %r go with fewer others", len(report.alone), envelope.sku)
    repeated.warn_each(envelope.sku, report.put_off.values())
    return report.summary()


def _span(task: Task[Any, Any], envelope: Envelope) -> AbstractContextManager[object]:
    """Return the span of the work on an envelope, in the traces of its orders; none without traces."""
    headers = {HEADER: getattr(task.request, HEADER, None)}
    sku, count = sku_label(envelope.sku), len(envelope.order_ids)
    named: dict[str, str | int] = {"segmented.sku": sku, "messaging.batch.message_count": count}
    return CURRENT.traces.working("process segmented.take_envelope", headers, named)


def _terms(app: Celery) -> WorkTerms:
    """Return the terms of this worker: once republished, its orders and its segment's lease belong to another."""
    said = settings()
    return _checked_terms(app, said.step, said.publish_after, said.hold, said.attempts_max, said.segment_timeout)


@lru_cache(APPS_MAX)
def _checked_terms(
    app: Celery, _step: str | None, work: float, hold: float, begun_max: int, segment_timeout: float
) -> WorkTerms:
    """Return the same, remembered: each message asks, and an assignment takes long to compare."""
    return WorkTerms(work, hold, work, begun_max, segment_timeout, assignment_of(app))


def _take(sku: str, order: Order) -> str:
    answer = _try(sku, order, timeout=0)
    if isinstance(answer, Busy) and not answer.is_in_hand:
        answer = _try(sku, order, timeout=settings().segment_timeout)
    if isinstance(answer, Busy):
        # The task does not wait for another holder's order: that could block a thread for a dead worker's whole lease.
        raise OrderInHand((answer.free_in_ms or 0) / 1_000) if answer.is_in_hand else NoSegmentFree
    return answer.state if isinstance(answer, Settled | Decided) else "refused"


def _try(sku: str, order: Order, *, timeout: float) -> Settled | Refusal:
    shared = connections()
    return sale.take_order(shared.pool(sku), shared.gate, order, timeout=timeout, keep_refusal=True)


def _pause(task: Task[Any, Any], reason: SegmentedError) -> float:
    """Return the seconds until the next attempt: until a lease may have expired, otherwise 1, 2, 4 and so on."""
    if isinstance(reason, OrderInHand):
        return min(reason.seconds + 0.1, RETRY_SECONDS_MAX)
    return min(1 << int(task.request.retries), RETRY_SECONDS_MAX)


@cache
def step() -> Callable[[BegunOrder], None] | None:
    """Return the function, or None if none is named. Raises InvalidInput for a name that cannot be resolved."""
    found: Callable[[BegunOrder], None] | None = _function("SEGMENTED_STEP", settings().step)
    return found


@cache
def on_outcome() -> OnOutcome | None:
    """Return the function to call with how orders ended, or None if none is named. Raises InvalidInput as `step`."""
    found: OnOutcome | None = _function("SEGMENTED_ON_OUTCOME", settings().on_outcome)
    return found


@cache
def store_with() -> StoreWith | None:
    """Return the function that stores rows with the orders, or None if none is named. Raises as `step`."""
    found: StoreWith | None = _function("SEGMENTED_STORE_WITH", settings().store_with)
    return found


def _function(variable: str, named: str | None) -> Any:  # noqa: ANN401  # what it takes cannot be asked
    if named is None:
        return None
    module, _, name = named.partition(":")
    try:
        found = getattr(import_module(module), name) if module and name else None
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{variable} is {named!r}: {error}") from error
    except Exception as error:  # a user's module may raise anything on import; Celery would log it and continue
        raise InvalidInput(f"{variable} is {named!r}: its module cannot be loaded: {one_line(repr(error))}") from error
    if not callable(found):
        raise InvalidInput(f"{variable} is {named!r}: it must name a function, as module:function")
    checked_step(found)
    return found


EVERY_SECONDS: Final = 10.0
REASONS_MAX: Final = 1_000
"""Pools and reasons that are remembered; beyond, all are forgotten, and each is logged at once again."""


class RepeatedLines:
    """Counts what was logged of each pool and reason; thread-safe."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[tuple[str, str], tuple[float, int]] = {}
        self._guard = Guard()

    def warn(self, sku: str, reason: str, orders: int) -> None:
        """Log that so many orders of a pool are tried again later, or add them to the next line."""
        with self._guard.lock:
            if len(self._known) >= REASONS_MAX:
                self._known.clear()
            after, count = self._known.get((sku, reason), (0.0, 0))
            now, count = self._now(), count + orders
            is_due = now >= after
            self._known[sku, reason] = (now + EVERY_SECONDS, 0) if is_due else (after, count)
        if is_due:
            log.warning("pool %r: %d orders are tried again later: %s", sku, count, reason)

    def warn_each(self, sku: str, reasons: Iterable[str]) -> None:
        """Log the reasons of orders that were put off, each reason once."""
        for reason, count in Counter(reasons).items():
            self.warn(sku, reason, count)


repeated: Final = RepeatedLines()

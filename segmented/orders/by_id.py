"""Confirm and cancel orders of which the caller knows only the id: the pool's record has the rest."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from segmented import protocol as op
from segmented.errors import OrderUnknown, PoolDiverged, PoolGated
from segmented.models import Reserved, Superseded
from segmented.orders import answers
from segmented.orders.decided import settled_by
from segmented.orders.sale import REBUILDS_MAX, cancel_order, expire, gated, record_of, stored, tell_pool
from segmented.orders.verifying import when_verified
from segmented.stock.settings import checked_decided

if TYPE_CHECKING:
    from segmented.models import Settled
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool

AnswerT = TypeVar("AnswerT")


def finish_by_id(pool: Pool, gate: OrderDatabase, order_id: str, holder_id: str | None = None) -> Settled:
    """Store a reserved order of which only the id is known, and confirm it. Safe to repeat. Raises OrderUnknown."""
    pool = gated(pool, gate)
    order_id, holder_id = checked_decided(order_id, holder_id)
    for _ in range(REBUILDS_MAX):
        epoch, record = pool.epoch(), record_of(pool, gate, order_id)
        if record is None or record.state != "reserved":
            known = decision_on(gate, pool, order_id) if record is None else None
            if known is not None:
                return known
            with suppress(PoolGated):  # it was reserved since its record was read: read that again
                return _told(pool, gate, op.Confirm(pool.sku, order_id, holder_id))
            continue
        order = record.order
        taken = Reserved(order_id, record.quantity, record.segment, record.parts, epoch, record.sequence, replay=True)
        decided = stored(pool, gate, order, taken, fence=None)
        if not isinstance(decided, answers.EpochChanged) or pool.epoch(at_least=decided.epoch) == epoch:
            return tell_pool(pool, gate, order, decided, epoch=epoch, holder_id=holder_id)
    raise PoolDiverged(pool.sku, order_id, f"it was reserved again, or rebuilt, {REBUILDS_MAX} times in a row")


def cancel_by_id(pool: Pool, gate: OrderDatabase, order_id: str, holder_id: str | None) -> Settled | Superseded:
    """Void an order of which only the id is known, and return its units. With a holder id only while that has it."""
    pool = gated(pool, gate)
    order_id, holder_id = checked_decided(order_id, holder_id)
    for _ in range(REBUILDS_MAX):
        record = record_of(pool, gate, order_id)
        if record is not None:
            if holder_id is not None and record.state == "reserved" and record.holder_id != holder_id:
                return Superseded(order_id, record.fencing_token or 0)
            return cancel_order(pool, gate, record.order)
        known = decision_on(gate, pool, order_id)
        if known is not None:
            return known
        with suppress(PoolGated):  # as above
            return _cancelled_in_queue(pool, gate, order_id)
    raise PoolDiverged(pool.sku, order_id, f"it was reserved again {REBUILDS_MAX} times in a row")


def extend_by_id(pool: Pool, gate: OrderDatabase, operation: op.ExtendHold) -> Reserved | Settled:
    """Lengthen an order's hold; if it has ended, decide the order, and return its decision."""
    pool = gated(pool, gate)
    for _ in range(REBUILDS_MAX):
        answer = _asked_pool(pool, gate, operation.order_id, operation)
        if answer is not None:
            return answer
        record = record_of(pool, gate, operation.order_id)
        if record is not None and record.state == "reserved":
            expire(pool, gate, record)
    raise PoolDiverged(pool.sku, operation.order_id, f"its hold had ended {REBUILDS_MAX} times in a row")


def change_by_id(pool: Pool, gate: OrderDatabase, operation: op.ChangeQuantity) -> Reserved | Settled:
    """Give some of an order's units back, unless the database has decided it: it may be sold and the pool not know."""
    pool, order_id = gated(pool, gate), operation.order_id
    record = record_of(pool, gate, order_id)
    ask = partial(_asked_pool, pool, gate, order_id, operation)
    try:
        if record is None or record.state != "reserved":
            return ask()
        answer = gate.while_undecided(pool.sku, order_id, record.segment, ask)
    finally:
        pool.note_return()
    return answer or settled_by(gate.orders(pool.sku, (order_id,))[order_id])


def _asked_pool(pool: Pool, gate: OrderDatabase, order_id: str, operation: op.Operation[AnswerT]) -> AnswerT | Settled:
    """Ask the pool about an order; of one that it does not know, return the database's decision."""
    try:
        return when_verified(pool, gate, lambda: pool.store.execute(operation))
    except OrderUnknown:
        known = decision_on(gate, pool, order_id)
        if known is None:
            raise
        return known


def _told(pool: Pool, gate: OrderDatabase, operation: op.Confirm) -> Settled:
    """Return how an order ended that is not reserved, or raise OrderUnknown or OrderQueued."""
    return when_verified(pool, gate, lambda: pool.store.execute(operation))


def _cancelled_in_queue(pool: Pool, gate: OrderDatabase, order_id: str) -> Settled | Superseded:
    (submitted,) = pool.store.execute(op.ReadSubmitted(pool.sku, (order_id,)))
    if submitted.order is None:
        return pool.store.execute(op.Cancel(pool.sku, order_id))  # raises OrderUnknown
    return cancel_order(pool, gate, submitted.order)


def decision_on(gate: OrderDatabase, pool: Pool, order_id: str) -> Settled | None:
    """Return the database's decision on an order, if it has one."""
    row = gate.orders(pool.sku, (order_id,)).get(order_id)
    return None if row is None else settled_by(row)

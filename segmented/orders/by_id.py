"""Confirm, cancel, extend, change and return orders of which the caller knows only the id.

The pool's record has the rest. A return goes to the database first, then the pool gets the units, so the database never
allows less than the pool may sell. A process that dies between the two leaves a row in state `begun`; the next call
with the same id finishes it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from segmented import protocol as op
from segmented.errors import EpochEnded, OrderInWork, OrderQueued, OrderUnknown, PoolDiverged, PoolGated, SegmentedError
from segmented.models import Order, Reserved, Returned, Settled, Superseded
from segmented.models.ids import is_cart_line
from segmented.orders import answers
from segmented.orders.answers import Confirmed, Return
from segmented.orders.forgetting import settled_by
from segmented.orders.return_rows import NotReturned, ReturnStored
from segmented.orders.sale import REBUILDS_MAX, cancel_order, expire, gated, record_of, stored, tell_pool
from segmented.orders.tables import CONFIRMED, DONE
from segmented.orders.verifying import when_verified
from segmented.protocol.pool.standing import too_many_returned
from segmented.stock.settings import checked_decided

if TYPE_CHECKING:
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


# --- returns ---


def return_gated(pool: Pool, gate: OrderDatabase, operation: op.ReturnUnits) -> Returned | Settled | None:
    """Give back units of a sold order, once for each return id; None if the order is not sold yet. Safe to repeat."""
    pool = gated(pool, gate)
    wanted = Return(pool.sku, operation.order_id, operation.units, operation.return_id)
    if not _is_told(pool, gate, wanted.order_id):
        return None
    stored = gate.returns.begin(wanted)
    if isinstance(stored, NotReturned):
        return _not_returned(pool, gate, wanted, stored)
    operation = replace(operation, sku=pool.sku, epoch=stored.epoch, customer_id=stored.customer_id)
    try:
        answer = _return_told(pool, gate, operation)
    except EpochEnded as ended:
        if ended.epoch < stored.epoch:
            raise PoolDiverged(pool.sku, wanted.order_id, f"its return is of epoch {stored.epoch}") from ended
        again = gate.returns.begin(wanted)
        if isinstance(again, ReturnStored) and again.epoch > stored.epoch:  # the rebuild has left it to this epoch
            return return_gated(pool, gate, operation)
        answer = None  # the pool had its units, or knows no order of then: its sums have them as free
    finally:
        pool.note_return()
    sequence = answer.sequence if isinstance(answer, Returned) else 0
    if stored.state != DONE:
        gate.returns.finish(wanted, stored.epoch, sequence)
    is_new = isinstance(answer, Returned) and not answer.replay
    return Returned(wanted.order_id, wanted.return_id, wanted.units, stored.quantity, sequence, replay=not is_new)


def finish_returns(pool: Pool, gate: OrderDatabase) -> int:
    """Finish the returns whose processes died before the pool had the units; returns how many there were.

    Raises the first error, after all were tried.
    """
    begun, failed = gate.returns.begun(pool.sku), []
    for one in begun:
        try:
            return_gated(pool, gate, op.ReturnUnits(pool.sku, one.order_id, one.units, one.return_id))
        except SegmentedError as error:  # one that cannot be finished stops no other
            failed.append(error)
    if failed:
        raise failed[0]
    return len(begun)


def _is_told(pool: Pool, gate: OrderDatabase, order_id: str) -> bool:
    """Tell the pool of a sale before the database has fewer units than the pool; False if the order is not sold yet.

    Whoever tells it later would take the order for another one, and give its units back. Raises OrderInWork for a line
    of a cart whose lines are not all told.
    """
    record = record_of(pool, gate, order_id)
    if record is None or record.state != "reserved":
        return True
    row = gate.orders(pool.sku, (order_id,)).get(order_id)
    if row is not None and row.state == CONFIRMED:
        if is_cart_line(order_id):
            raise OrderInWork(order_id)
        tell_pool(pool, gate, Order(order_id, record.asked), Confirmed(replay=True), epoch=row.epoch or pool.epoch())
    return row is not None


def _return_told(pool: Pool, gate: OrderDatabase, operation: op.ReturnUnits) -> Returned | Settled:
    """Give the units back in the pool; an order that it was not told to be sold is confirmed first."""
    for _ in range(REBUILDS_MAX):
        answer = when_verified(pool, gate, partial(pool.store.execute, operation))
        if answer is not None:
            return answer
        record = record_of(pool, gate, operation.order_id)
        if record is not None and record.state == "reserved":
            order = Order(record.order_id, record.asked)
            tell_pool(pool, gate, order, Confirmed(replay=True), epoch=pool.epoch())
    raise PoolDiverged(pool.sku, operation.order_id, f"it was reserved again {REBUILDS_MAX} times in a row")


def _not_returned(pool: Pool, gate: OrderDatabase, wanted: Return, found: NotReturned) -> Settled | None:
    """Return how an order has ended that is not sold, or None if it is reserved; raise for one that has fewer units."""
    if found.quantity:
        raise too_many_returned(wanted.order_id, wanted.units, found.quantity)
    known = decision_on(gate, pool, wanted.order_id)
    if known is not None:
        return known
    record = record_of(pool, gate, wanted.order_id)
    if record is None:
        (submitted,) = pool.store.execute(op.ReadSubmitted(pool.sku, (wanted.order_id,)))
        raise (OrderUnknown if submitted.order is None else OrderQueued)(wanted.order_id)
    if record.state == "reserved":
        return None
    fields = (record.segment, record.fencing_token, record.sequence)
    return Settled(record.order_id, record.state, record.quantity, *fields, replay=True)

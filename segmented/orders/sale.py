"""One order from the queue to its fate: a segment, the database under the segment's lock, then the pool.

With a gate the SQL order row alone decides. So every path here ends by telling the pool what the database said, and a
process that dies between any two steps leaves an order that the next delivery finishes with the same units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented import operations as op
from segmented.errors import PoolDiverged, PoolNotGated, SegmentedError
from segmented.models import Order, Reserved, Settled
from segmented.orders import answers
from segmented.stock import Grant

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models import Refusal
    from segmented.orders.gate import Gate
    from segmented.stock import Pool

SUPERSEDED_MAX: Final = 10
"""Grants in a row that a later one overtook before this gives up; each costs at least one lapsed lease."""


def take_order(
    pool: Pool,
    gate: Gate,
    order: Order,
    *,
    timeout: float | None,
    keep_refusal: bool = False,
    body: Callable[[Grant], None] | None = None,
) -> Settled | Refusal:
    """Grant a segment, run `body` and store the order under its lock, confirm. Safe to run twice, also at once.

    `body` runs again when a later grant overtook this one, whose lease had lapsed: up to 10 times in a call.
    If `body` raises, the order is voided in the database, its units go back, and the error goes on. If the database
    cannot be reached, the units stay held: the next call for this order has them.
    """
    _require_gated(pool)
    for _ in range(SUPERSEDED_MAX):
        grant = pool.grant(order, timeout=timeout, keep_refusal=keep_refusal)
        if not isinstance(grant, Grant):
            return grant
        if body is not None:
            try:
                body(grant)
            except Exception as error:
                _give_back(pool, gate, order, error)
                raise
        decided = gate.confirm(
            order_id=order.order_id,
            sku=pool.sku,
            segment=grant.segment,
            quantity=grant.quantity,
            epoch=grant.epoch,
            fence=grant.fencing_token,
            customer_id=order.customer_id,
        )
        if not isinstance(decided, answers.Superseded):
            return _told(pool, order, decided, holder_id=grant.holder_id)
    raise PoolDiverged(pool.sku, order.order_id, f"{SUPERSEDED_MAX} grants in a row were superseded")


def finish_reserved(pool: Pool, gate: Gate, order: Order, reserved: Reserved) -> Settled:
    """Store a reserved order in the database and confirm it: the path without a lock. Safe to run twice."""
    _require_gated(pool)
    decided = gate.confirm(
        order_id=order.order_id,
        sku=pool.sku,
        segment=reserved.segment,
        quantity=reserved.quantity,
        epoch=reserved.epoch,
        fence=None,
        customer_id=order.customer_id,
    )
    return _told(pool, order, decided)


def cancel_order(pool: Pool, gate: Gate, order: Order) -> Settled:
    """Void the order in the database, then give its units back; if it was confirmed first, that stands."""
    voided = gate.void(order_id=order.order_id, sku=pool.sku, quantity=order.quantity)
    if isinstance(voided, answers.AlreadyConfirmed):
        return pool.confirm(order.order_id)
    return _settled(pool, order, pool.cancel(order.order_id, voided=True))


def expire_voided(pool: Pool, gate: Gate, *, limit: int = 1_000) -> tuple[Settled, ...]:
    """Give back what lapsed holds of a gated pool kept, up to `limit` orders, each voided in the database first.

    An order that the database has confirmed is confirmed in the pool instead. Returns what this call decided.
    """
    store = pool.store
    due = store.execute(op.ListDue(pool.sku, limit))
    records = store.execute(op.ReadOrders(pool.sku, due)) if due else ()
    decided: list[Settled] = []
    for record in records:
        if record is None:
            continue
        voided = gate.void(order_id=record.order_id, sku=pool.sku, quantity=record.quantity)
        if isinstance(voided, answers.AlreadyConfirmed):
            answer: Settled | None = pool.confirm(record.order_id)
        else:
            answer = store.execute(op.Expire(pool.sku, record.order_id, voided=True))
        if answer is not None and not answer.replay:
            decided.append(answer)
    return tuple(decided)


def _told(pool: Pool, order: Order, decided: answers.ConfirmAnswer, *, holder_id: str | None = None) -> Settled:
    """Tell the pool what the database decided."""
    match decided:
        case answers.Confirmed():
            return _settled(pool, order, pool.confirm(order.order_id, holder_id=holder_id), expected="confirmed")
        case answers.Voided():
            return _settled(pool, order, pool.cancel(order.order_id, voided=True))
        case answers.SoldOut(total, sold):
            detail = f"the pool granted {order.quantity} units, but {sold} of {total} are sold"
        case answers.EpochChanged(epoch):
            detail = f"the database is in epoch {epoch}"
        case answers.Missing():
            detail = "the database has no row for its segment"
        case _:
            detail = f"unexpected answer {decided}"
    raise PoolDiverged(pool.sku, order.order_id, detail)


def _settled(pool: Pool, order: Order, answer: object, *, expected: str | None = None) -> Settled:
    if isinstance(answer, Settled) and (expected is None or answer.state == expected):
        return answer
    raise PoolDiverged(pool.sku, order.order_id, f"the database has decided, the pool says {answer}")


def _require_gated(pool: Pool) -> None:
    if not pool.is_gated():
        raise PoolNotGated(pool.sku)


def _give_back(pool: Pool, gate: Gate, order: Order, error: Exception) -> None:
    try:
        cancel_order(pool, gate, order)
    except SegmentedError as failure:  # the units stay held; the body's own error is the one to tell
        error.add_note(f"and the order could not be voided: {failure}")

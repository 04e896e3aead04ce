"""Process one order from the queue: a segment, the database under the segment's lock, then the pool.

With a gate only the SQL order row decides. So every path here ends by passing the database's answer to the pool, and if
a process dies between any two steps, the next delivery finishes the order with the same units.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import (
    GrantSuperseded,
    InvalidInput,
    OrderMismatch,
    PoolDiverged,
    PoolFrozen,
    PoolNotGated,
    SegmentedError,
)
from segmented.models import Closed, LimitReached, Order, Reserved, Settled, SoldOut
from segmented.models.pools import EpochEnded
from segmented.orders import answers
from segmented.orders.forgetting import may_have_forgotten
from segmented.orders.tables import VOID
from segmented.orders.verifying import when_verified
from segmented.plans import run_sync
from segmented.stock import Grant
from segmented.stock.plans import due_plan
from segmented.stock.settings import checked_expire_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from segmented.models import OrderRecord, Refusal, Superseded
    from segmented.orders.gate import Gate
    from segmented.stock import Pool

SUPERSEDED_MAX: Final = 10
"""Maximum number of consecutive grants overtaken by a later one."""
REBUILDS_MAX: Final = 10
"""Maximum number of rebuilds that overtake one confirm."""


def take_order(
    pool: Pool,
    gate: Gate,
    order: Order,
    *,
    timeout: float | None,
    keep_refusal: bool = False,
    partial: bool = False,
    body: Callable[[Grant], None] | None = None,
    repeat_body: bool = False,
) -> Settled | Refusal:
    """Grant a segment, run `body` and store the order under its lock, confirm. Safe to repeat, also concurrently.

    With `partial` the order takes fewer units if fewer are left; the grant that `body` gets has the quantity. If `body`
    raises, the order is voided in the database, its units are returned, and the error propagates. If the database
    cannot be reached, the units stay reserved: the next call for this order gets them. Raises OrderMismatch for an id
    that either side knows with other content; units that this call took are returned. An order that the database sold
    in an earlier epoch of the pool gets that answer, and `body` does not run.

    If a later grant of the segment reached the database first, the segment is freed at once and granted again with a
    higher token. `body` has run by then, so this raises GrantSuperseded with the units still reserved, and the caller
    decides; with `repeat_body`, or without a body, the call goes on by itself, up to 10 times. Raises PoolFrozen if the
    database shows that the pool lost changes, which this call asks it after a restart or failover of the pool's server.
    """
    _require_gated(pool)
    epoch = pool.epoch()
    before = decided_before(pool, gate, order, epoch)
    if before is not None:
        return before
    for _ in range(SUPERSEDED_MAX):
        grant = when_verified(
            pool, gate, lambda: pool.grant(order, timeout=timeout, keep_refusal=keep_refusal, partial=partial)
        )
        before = _sold_in_another_epoch(pool, gate, order, grant, epoch)
        if before is not None:
            return before
        if not isinstance(grant, Grant):
            return grant
        holder_id = grant.holder_id  # from here on the database decides the order, also if this call ends early
        if body is not None and not _is_stored(pool, gate, grant):
            try:
                body(grant)
            except Exception as error:
                _give_back(pool, gate, order, error)
                raise
        decided = _stored(pool, gate, order, grant)
        if not isinstance(decided, answers.Superseded):
            return tell_pool(pool, gate, order, decided, epoch=grant.epoch, holder_id=holder_id)
        pool.note_token(decided.fence)
        _release(pool, gate, grant)
        if body is not None and not repeat_body:
            raise GrantSuperseded(order.order_id, decided.fence)
    raise PoolDiverged(pool.sku, order.order_id, f"{SUPERSEDED_MAX} grants in a row were superseded")


def _sold_in_another_epoch(pool: Pool, gate: Gate, order: Order, answer: Grant | Refusal, known: int) -> Settled | None:
    """Ask the database again if the pool that answered was rebuilt since this process asked it for its epoch."""
    if isinstance(answer, Settled):
        return None if answer.state == "confirmed" else decided_before(pool, gate, order, pool.state().epoch)
    epoch = known
    if isinstance(answer, Grant | SoldOut):
        epoch = answer.epoch
    elif isinstance(answer, Closed | LimitReached):
        epoch = pool.state().epoch
    return None if epoch == known else ended_before(pool, gate, order, pool.epoch(at_least=epoch))


def _is_stored(pool: Pool, gate: Gate, grant: Grant) -> bool:
    """Return whether the database has decided an order that was granted before: its caller died, or the pool forgot."""
    return grant.answer.replay and bool(gate.orders(pool.sku, (grant.order_id,)))


def _stored(pool: Pool, gate: Gate, order: Order, grant: Grant) -> answers.ConfirmAnswer:
    try:
        return gate.confirm(
            order_id=order.order_id,
            sku=pool.sku,
            segment=grant.segment,
            quantity=grant.quantity,
            epoch=grant.epoch,
            fence=grant.fencing_token,
            customer_id=order.customer_id,
            asked=_asked(order, grant.quantity),
            sequence=grant.answer.sequence,
        )
    except OrderMismatch as error:  # it can never be stored with the pool's content
        _let_go(pool, gate, order, error)
        raise


def finish_reserved(pool: Pool, gate: Gate, order: Order, reserved: Reserved) -> Settled:
    """Store a reserved order in the database and confirm it: the path without a lock. Safe to repeat."""
    _require_gated(pool)
    decided = gate.confirm(
        order_id=order.order_id,
        sku=pool.sku,
        segment=reserved.segment,
        quantity=reserved.quantity,
        epoch=reserved.epoch,
        fence=None,
        customer_id=order.customer_id,
        asked=_asked(order, reserved.quantity),
        sequence=reserved.sequence,
    )
    return tell_pool(pool, gate, order, decided, epoch=reserved.epoch)


def cancel_order(pool: Pool, gate: Gate, order: Order) -> Settled:
    """Void the order in the database, then return its units; if it was confirmed first, it stays confirmed.

    Units that a pool holds for an order sold by a pool of an earlier epoch are returned, too.
    """
    (record,) = pool.store.execute(op.ReadOrders(pool.sku, (order.order_id,)))
    if record is not None and record.asked != order.quantity:
        raise OrderMismatch(order.order_id, f"quantity {record.asked} was asked for, {order.quantity} was given")
    taken = order.quantity if record is None or record.state == "refused" else record.quantity
    voided = gate.void(order_id=order.order_id, sku=pool.sku, quantity=taken, asked=order.quantity)
    if isinstance(voided, answers.AlreadyConfirmed):
        return _told_sold(pool, gate, order)
    return _settled(pool, order, _cancel(pool, gate, order))


def expire_voided(pool: Pool, gate: Gate, *, limit: int = 1_000) -> tuple[Settled, ...]:
    """Give back the units of expired holds of a gated pool, up to `limit` orders, each voided in the database first.

    An order that the database has confirmed is confirmed in the pool instead; if that was in an earlier epoch, other
    units are sold, so these are returned. One that the database knows with other content can never be sold with the
    pool's content, so its units are returned, too. Returns the orders whose hold this call ended, each with its state.
    """
    limit = checked_expire_limit(pool.sku, limit)
    ended: list[Settled] = []

    def due() -> list[OrderRecord]:
        return run_sync(due_plan(pool.sku, limit - len(ended)), pool.store)

    is_more_due = True
    while is_more_due and len(ended) < limit:
        settled = [_expire(pool, gate, record) for record in when_verified(pool, gate, due)]
        ended += [answer for answer in settled if answer is not None]
        is_more_due = None not in settled and len(settled) > 0  # live leases protect some
    return tuple(ended)


def _expire(pool: Pool, gate: Gate, record: OrderRecord) -> Settled | None:
    if _is_confirmed(pool, gate, record):
        return _told_sold(pool, gate, Order(record.order_id, record.asked))
    answer = pool.store.execute(op.Expire(pool.sku, record.order_id, voided=True))
    return None if answer is None or answer.replay else answer


def _told_sold(pool: Pool, gate: Gate, order: Order) -> Settled:
    """Tell the pool that the database sold the order some time ago."""
    return tell_pool(pool, gate, order, answers.Confirmed(replay=True), epoch=pool.state().epoch)


def _is_confirmed(pool: Pool, gate: Gate, record: OrderRecord) -> bool:
    """Void an order with the pool's content, and return whether it was confirmed first."""
    asked = record.asked if record.asked != record.quantity else None
    try:
        voided = gate.void(order_id=record.order_id, sku=pool.sku, quantity=record.quantity, asked=asked)
    except OrderMismatch:  # the database has another order of this id
        return False
    return isinstance(voided, answers.AlreadyConfirmed)


def decided_before(pool: Pool, gate: Gate, order: Order, epoch: int) -> Settled | None:
    """Return the database's decision on an order that this pool sold before this `epoch`, or has forgotten."""
    return _decided(pool, gate, order, epoch, voided=True)


def _decided(pool: Pool, gate: Gate, order: Order, epoch: int, *, voided: bool) -> Settled | None:
    forgets = may_have_forgotten(pool)
    if epoch == 1 and not forgets:
        return None
    before = decided_by(gate, pool, [order.order_id], epoch, voided=voided and forgets).get(order.order_id)
    if before is not None and before.quantity > order.quantity:
        raise OrderMismatch(order.order_id, f"quantity {before.quantity} is stored, {order.quantity} was given")
    return before


def decided_by(
    gate: Gate, pool: Pool, order_ids: Iterable[str], epoch: int, *, voided: bool = False
) -> dict[str, Settled]:
    """Return the database's decision on those of the orders that a pool before this `epoch` sold, by id.

    Forgotten orders are among them, as their epoch is 0; with `voided`, those that the database voided as well.
    """
    decided: dict[str, Settled] = {}
    for row in gate.orders(pool.sku, order_ids).values():
        place = row.order_id, row.quantity, row.segment or 0
        if row.state == VOID and voided:
            decided[row.order_id] = Settled(place[0], "cancelled", *place[1:], None, 0, replay=True)
        elif row.epoch is not None and row.epoch < epoch:
            decided[row.order_id] = Settled(place[0], "confirmed", *place[1:], row.fence, 0, replay=True)
    return decided


def ended_before(pool: Pool, gate: Gate, order: Order, epoch: int) -> Settled | None:
    """Return the same decision on a sold order, after the pool has given back units that it took again."""
    before = _decided(pool, gate, order, epoch, voided=False)
    if before is not None:
        end_decided(pool, gate, {order.order_id: before})
    return before


def end_decided(pool: Pool, gate: Gate, decided: Mapping[str, Settled]) -> None:
    """End what the pool has of orders that were decided before: units go back, and callers learn what was decided."""
    for state, sold_before in (("confirmed", True), ("cancelled", False)):
        ids = tuple(order_id for order_id, settled in decided.items() if settled.state == state)
        if ids:
            operation = op.SettleMany(pool.sku, "cancelled", ids, decided=True, sold_before=sold_before)
            when_verified(pool, gate, partial(pool.store.execute, operation))


def tell_pool(
    pool: Pool,
    gate: Gate,
    order: Order,
    decided: answers.ConfirmAnswer,
    *,
    epoch: int,
    holder_id: str | None = None,
) -> Settled:
    """Apply the database's decision to the pool: the second half of `take_order`, for orders that you store yourself.

    `epoch` is that of the grant or reservation that was stored, `holder_id` that of a grant, whose segment is freed.
    Safe to repeat. If a later epoch of the pool has the order's units a second time, they go back. Raises PoolFrozen if
    the pool lost changes, else PoolDiverged.
    """
    match decided:
        case answers.Confirmed(replay):
            answer = _confirmed(pool, gate, order, epoch, holder_id, is_asked=replay)
            return _settled(pool, order, answer, expected="confirmed")
        case answers.Voided():
            return _settled(pool, order, _cancel(pool, gate, order))
        case answers.SoldOut(total, sold):  # the pool has units that were sold: they must never be granted again
            detail = f"the pool granted units, but {sold} of {total} are sold"
            _freeze(pool, epoch)
        case answers.EpochChanged(later):
            detail = f"the database is in epoch {later}, and its units were taken in epoch {epoch}: take it again"
            if later > epoch:
                _freeze(pool, epoch)
        case answers.Missing():
            detail = "the database has no row for its segment"
        case _:
            detail = f"unexpected answer {decided}"
    raise PoolDiverged(pool.sku, order.order_id, detail)


def _confirmed(pool: Pool, gate: Gate, order: Order, epoch: int, holder_id: str | None, *, is_asked: bool) -> Settled:
    """Confirm a stored order, unless an earlier epoch sold it: then units that the pool took for it again go back.

    With `is_asked` the database did not store it just now, so that may have been in an earlier epoch than the caller's.
    """
    known = pool.epoch(at_least=epoch) if is_asked else None
    for _ in range(REBUILDS_MAX):
        before = None if known is None else ended_before(pool, gate, order, known)
        if before is not None:
            return before
        operation = op.Confirm(pool.sku, order.order_id, holder_id, stored=True, epoch=known or epoch)
        try:
            return when_verified(pool, gate, partial(pool.store.execute, operation))
        except EpochEnded as ended:
            known = pool.epoch(at_least=ended.epoch)
    raise PoolDiverged(pool.sku, order.order_id, f"it was rebuilt {REBUILDS_MAX} times in a row")


def _freeze(pool: Pool, epoch: int) -> None:
    """Freeze the pool and raise PoolFrozen, unless it is in another epoch by now."""
    with suppress(InvalidInput):
        frozen = pool.store.execute(op.FreezePool(pool.sku, epoch))
        raise PoolFrozen(pool.sku, found=frozen.found, seen=frozen.seen)


def _settled(pool: Pool, order: Order, answer: object, *, expected: str | None = None) -> Settled:
    if isinstance(answer, Settled) and (expected is None or answer.state == expected):
        return answer
    raise PoolDiverged(pool.sku, order.order_id, f"the database has decided, the pool says {answer}")


def _asked(order: Order, taken: int) -> int | None:
    """Return the asked quantity for the database to compare: None if all of it was taken."""
    return order.quantity if taken != order.quantity else None


def _require_gated(pool: Pool) -> None:
    if not pool.is_gated() and not pool.is_gated(again=True):
        raise PoolNotGated(pool.sku)


def _cancel(pool: Pool, gate: Gate, order: Order) -> Settled | Superseded:
    return when_verified(pool, gate, lambda: pool.cancel(order.order_id, voided=True))


def _release(pool: Pool, gate: Gate, grant: Grant) -> None:
    operation = op.ReleaseGrant(pool.sku, grant.order_id, grant.holder_id)
    when_verified(pool, gate, lambda: pool.store.execute(operation))


def _let_go(pool: Pool, gate: Gate, order: Order, error: OrderMismatch) -> None:
    try:
        _cancel(pool, gate, order)
    except SegmentedError as failure:  # the units stay reserved until the hold expires
        error.add_note(f"and its units could not be given back: {failure}")


def _give_back(pool: Pool, gate: Gate, order: Order, error: Exception) -> None:
    try:
        cancel_order(pool, gate, order)
    except SegmentedError as failure:  # the units stay reserved; the body's error matters more
        error.add_note(f"and the order could not be voided: {failure}")

"""Orders that the database has decided and the pool does not know: sold before a rebuild, or forgotten since."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.models import Settled
from segmented.orders.answers import stored_as
from segmented.orders.deciding import check_same
from segmented.orders.forgetting import may_have_forgotten
from segmented.orders.tables import CONFIRMED, VOID
from segmented.orders.verifying import when_verified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmented.models import Order
    from segmented.orders.answers import OrderRow
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool


def may_know_more(pool: Pool, epoch: int) -> bool:
    """Return whether the database may have decided orders that the pool does not know."""
    return epoch > 1 or may_have_forgotten(pool)


def decided_before(
    pool: Pool, gate: OrderDatabase, order: Order, epoch: int, *, asked: int | None, voided: bool = True
) -> Settled | None:
    """Return the database's decision on an order that this pool sold before this `epoch`, or has forgotten.

    `asked` is the order's quantity if fewer units may be stored. Raises OrderMismatch.
    """
    if not may_know_more(pool, epoch):
        return None
    row = gate.orders(pool.sku, (order.order_id,)).get(order.order_id)
    return decision_of(pool, gate, order, row, epoch, asked=asked, voided=voided and may_have_forgotten(pool))


def decision_of(
    pool: Pool, gate: OrderDatabase, order: Order, row: OrderRow | None, epoch: int, *, asked: int | None, voided: bool
) -> Settled | None:
    """Return the same from the order's row, if there is one; with `voided`, a void is a decision in every epoch."""
    if row is None or not _is_unknown(row, epoch, voided=voided):
        return None
    if row.quantity < order.quantity and asked is None and _has_given_back(pool, gate, order, row):
        asked = order.quantity
    check_same(order, row, asked)
    return settled_by(row)


def _has_given_back(pool: Pool, gate: OrderDatabase, order: Order, row: OrderRow) -> bool:
    """Return whether the order had as many units as are asked for, and some were returned, or it was changed."""
    left = row.quantity if row.state == CONFIRMED else 0
    if left + gate.returns.units(pool.sku, order.order_id) == order.quantity:
        return True
    (record,) = pool.store.execute(op.ReadOrders(pool.sku, (order.order_id,)))
    return record is not None and record.asked == order.quantity and record.quantity == row.quantity


def _is_unknown(row: OrderRow, epoch: int, *, voided: bool) -> bool:
    """Return whether a pool of this `epoch` does not know a decision: an earlier sale, or with `voided` a void."""
    return voided if row.state == VOID else row.epoch is not None and row.epoch < epoch


def settled_by(row: OrderRow) -> Settled:
    """Return the database's decision as the pool's answer."""
    state = stored_as(row.state, row.segment)
    quantity = 0 if state == "returned" else row.quantity
    return Settled(row.order_id, state, quantity, row.segment or 0, row.fence, 0, replay=True)


def ended_before(pool: Pool, gate: OrderDatabase, order: Order, epoch: int) -> Settled | None:
    """Return the same decision on a sold order, after the pool has given back units that it took again."""
    before = decided_before(pool, gate, order, epoch, asked=order.quantity, voided=False)
    if before is not None:
        end_decided(pool, gate, {order.order_id: before})
    return before


def end_unknown(
    pool: Pool, gate: OrderDatabase, order_ids: tuple[str, ...], *, asks: bool
) -> tuple[dict[str, Settled], frozenset[str]]:
    """End orders that the database has decided and the pool does not know. Returns them, and all that it has decided.

    Without `asks` the database is asked only if it may have decided orders that the pool does not know.
    """
    epoch, forgets = pool.epoch(), may_have_forgotten(pool)
    if not (asks or may_know_more(pool, epoch)):
        return {}, frozenset()
    rows = gate.orders(pool.sku, order_ids)
    decided = {each: settled_by(row) for each, row in rows.items() if _is_unknown(row, epoch, voided=forgets)}
    end_decided(pool, gate, decided)
    return decided, frozenset(rows)


def end_decided(pool: Pool, gate: OrderDatabase, decided: Mapping[str, Settled]) -> None:
    """End what the pool has of orders that were decided before: units go back, and callers learn what was decided."""
    for sold_before in (True, False):  # the others were cancelled, or returned whole
        ids = tuple(order_id for order_id, one in decided.items() if (one.state == "confirmed") is sold_before)
        if ids:
            operation = op.SettleMany(pool.sku, "cancelled", ids, decided=True, sold_before=sold_before)
            when_verified(pool, gate, partial(pool.store.execute, operation))

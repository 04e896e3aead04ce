"""Orders that the database has decided and the pool does not know: sold before a rebuild, or forgotten since."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.models import Settled
from segmented.orders.forgetting import may_have_forgotten
from segmented.orders.standing import check_same
from segmented.orders.tables import VOID
from segmented.orders.verifying import when_verified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmented.models import Order
    from segmented.orders.answers import OrderRow
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool


def asks_first(pool: Pool, epoch: int) -> bool:
    """Return whether the database may have decided orders that the pool does not know."""
    return epoch > 1 or may_have_forgotten(pool)


def decided_before(pool: Pool, gate: OrderDatabase, order: Order, epoch: int, *, voided: bool = True) -> Settled | None:
    """Return the database's decision on an order that this pool sold before this `epoch`, or has forgotten."""
    if not asks_first(pool, epoch):
        return None
    row = gate.orders(pool.sku, (order.order_id,)).get(order.order_id)
    return decided_in(pool, order, row, epoch, asked=order.quantity, voided=voided)


def decided_in(
    pool: Pool, order: Order, row: OrderRow | None, epoch: int, *, asked: int | None, voided: bool = True
) -> Settled | None:
    """Return the decision of the order's `row` that a pool of this `epoch` does not know. Raises OrderMismatch."""
    if row is None:
        return None
    before = decision(row, epoch, voided=voided and may_have_forgotten(pool))
    if before is not None:
        check_same(order, row, asked)
    return before


def decision(row: OrderRow, epoch: int, *, voided: bool) -> Settled | None:
    """Return a sale of an earlier epoch, or with `voided` a void, as the answer to the order."""
    place = row.order_id, row.quantity, row.segment or 0
    if row.state == VOID and voided:
        return Settled(place[0], "cancelled", *place[1:], None, 0, replay=True)
    if row.epoch is not None and row.epoch < epoch:
        return Settled(place[0], "confirmed", *place[1:], row.fence, 0, replay=True)
    return None


def ended_before(pool: Pool, gate: OrderDatabase, order: Order, epoch: int) -> Settled | None:
    """Return the same decision on a sold order, after the pool has given back units that it took again."""
    before = decided_before(pool, gate, order, epoch, voided=False)
    if before is not None:
        _end_decided(pool, gate, {order.order_id: before})
    return before


def end_unknown(
    pool: Pool, gate: OrderDatabase, order_ids: tuple[str, ...], *, asks: bool
) -> tuple[dict[str, Settled], frozenset[str]]:
    """End orders that the database has decided and the pool does not know. Returns them, and all that it has decided.

    Without `asks` the database is asked only if it may have decided orders that the pool does not know.
    """
    epoch, forgets = pool.epoch(), may_have_forgotten(pool)
    if not (asks or asks_first(pool, epoch)):
        return {}, frozenset()
    rows = gate.orders(pool.sku, order_ids)
    found = {order_id: decision(row, epoch, voided=forgets) for order_id, row in rows.items()}
    decided = {order_id: settled for order_id, settled in found.items() if settled is not None}
    _end_decided(pool, gate, decided)
    return decided, frozenset(rows)


def _end_decided(pool: Pool, gate: OrderDatabase, decided: Mapping[str, Settled]) -> None:
    """End what the pool has of orders that were decided before: units go back, and callers learn what was decided."""
    for state, sold_before in (("confirmed", True), ("cancelled", False)):
        ids = tuple(order_id for order_id, settled in decided.items() if settled.state == state)
        if ids:
            operation = op.SettleMany(pool.sku, "cancelled", ids, decided=True, sold_before=sold_before)
            when_verified(pool, gate, partial(pool.store.execute, operation))

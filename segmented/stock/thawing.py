"""Let a frozen pool without an order database sell again, as a plan.

Another program may have changed the pool's number of reserved units, and reserved orders may be stale: sold, cancelled
or expired before the server forgot it. So the plan counts the reserved units of all orders, and if they leave too few
units for those that the operator says were sold, it cancels the newest orders. Nothing else changes in between, because
the pool is frozen for every process first. Every step can be the last one of its process.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import PoolGated, PoolNotFrozen, TooManySold
from segmented.models.pools import latest_epoch
from segmented.plans import Plan, perform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models import OrderRecord, PoolState, Thawed

LOGGER: Final = logging.getLogger("segmented.stock")


def thaw_plan(operation: op.ThawPool) -> Plan[Thawed]:
    """Thaw a frozen pool in the epoch after the last one that was seen."""
    state = yield from _frozen_plan(operation.sku)
    records = yield from _reserved_plan(operation.sku)
    counted = sum(record.quantity for record in records.values())
    last = replace(operation, epoch=latest_epoch(state) + 1, reserved=(state.reserved, counted))
    cancelled: list[OrderRecord] = []
    try:
        thawed = yield from perform(last)
    except TooManySold as error:
        if error.sold > error.stocked:
            raise TooManySold(error.sku, sold=error.sold, stocked=error.stocked) from None
        cancelled += _newest(records, error.sold + error.reserved - error.stocked)
        yield from _cancelled_plan(last, cancelled)
        units = sum(record.quantity for record in cancelled)
        LOGGER.warning("pool.overbooked sku=%s cancelled=%d units=%d", operation.sku, len(cancelled), units)
        thawed = yield from perform(replace(last, reserved=(state.reserved - units, counted - units)))
    if thawed is None:
        raise PoolNotFrozen(operation.sku)
    return replace(thawed, cancelled_count=len(cancelled))


def _frozen_plan(sku: str) -> Plan[PoolState]:
    """Freeze a pool for every process, if this one has seen that it lost changes; return its state from then on."""
    state = yield from perform(op.ReadPool(sku))
    if state.frozen is None:
        raise PoolNotFrozen(sku)
    if state.gated:
        raise PoolGated(sku, None)
    yield from perform(op.FreezePool(sku, state.epoch))
    return (yield from perform(op.ReadPool(sku)))


def _reserved_plan(sku: str) -> Plan[dict[str, OrderRecord]]:
    """Find the reserved orders of a pool that does not change, page by page."""
    found: dict[str, OrderRecord] = {}
    cursor = None
    while cursor != 0:
        cursor, records = yield from perform(op.ScanOrders(sku, cursor or 0))
        found |= {record.order_id: record for record in records if record.state == "reserved"}
    return found


def _newest(records: dict[str, OrderRecord], excess: int) -> Iterator[OrderRecord]:
    """Yield the newest reserved orders until they have the `excess` units."""
    newest_first = sorted(records.values(), key=lambda record: (record.sequence, record.order_id), reverse=True)
    for record in newest_first:
        if excess <= 0:
            return
        excess -= record.quantity
        yield record


def _cancelled_plan(last: op.ThawPool, records: list[OrderRecord]) -> Plan[None]:
    for first in range(0, len(records), op.BATCH_MAX):
        page = records[first : first + op.BATCH_MAX]
        yield from perform(replace(last, decided=tuple((one.order_id, "cancelled") for one in page), is_last=False))

"""Let a frozen pool without an order database sell again, as a plan.

Another program may have changed the pool's number of reserved units, and reserved orders may be stale: sold, cancelled
or expired before the server forgot it. So the plan counts the reserved units of all orders, and if they leave too few
units for those that the operator says were sold, it cancels the newest orders. Nothing else changes in between, because
the pool is frozen for every process first. Every step can be the last one of its process.

A shard may also have forgotten transfers: units that it has sent are free in it again, and units that it has received
are in no shard. So it takes over what the other shards know:

1. The shard is frozen at the epoch before its next one, so that a thaw in an earlier epoch is refused from now on.
2. Every other shard notes the next epoch. A shard that had noted it, or a later one, may have transfers of that epoch:
   the thaw begins again with a later epoch. From now on no transfer of an earlier epoch arrives anywhere.
3. The other shards are read. The notes of what they have received from this shard are final, those of what they have
   sent to it only grow.
4. The script that thaws the shard replaces each of its own notes that is lower. If the shard knows of more than another
   one, that one has lost changes, and is frozen too.
5. If both shards forgot a transfer and its units were sold, they are free in the other shard, and this one has sold
   more than it ever had. Then the others send it what it lacks, and the thaw begins again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import PoolGated, PoolNotFrozen
from segmented.models.pools import latest_epoch
from segmented.models.shards import Shard, note_of
from segmented.plans import Plan, perform
from segmented.protocol.freezing import TooManySold, counted_before
from segmented.stock.sharded.opening import all_plan, directory_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from segmented.models import OrderRecord, PoolState, Thawed, Transfer

LOGGER: Final = logging.getLogger("segmented.stock")
ROUNDS_MAX: Final = 10
"""Maximum number of other thaws of a shard that overtake one."""


def thaw_plan(operation: op.ThawPool) -> Plan[Thawed]:
    """Thaw a frozen pool in the epoch after the last one that was seen."""
    state = yield from _frozen_plan(operation.sku)
    records = yield from reserved_plan(operation.sku)
    counted = sum(record.quantity for record in records.values())
    epoch = latest_epoch(state) + 1
    transfers: tuple[Transfer, ...] = ()
    if isinstance(operation.sku, Shard):
        epoch, transfers = yield from _told_plan(operation.sku, state)
    last = replace(operation, epoch=epoch, reserved=(state.reserved, counted), transfers=transfers)
    yield from held_again_plan(last, state, records)
    cancelled: list[OrderRecord] = []
    try:
        thawed = yield from perform(last)
    except TooManySold as error:
        if error.sold > error.stocked:
            missing, sku = error.sold - error.stocked, operation.sku
            if operation.stocked is None and isinstance(sku, Shard) and (yield from _brought_plan(sku, missing)):
                return (yield from thaw_plan(operation))
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


def _told_plan(shard: Shard, state: PoolState) -> Plan[tuple[int, tuple[Transfer, ...]]]:
    """Find the next epoch of a frozen shard, and what the other shards have sent to it and received from it."""
    others = [one for one in (yield from directory_plan(shard.sku)).shards if one != shard]
    epoch, noted = latest_epoch(state), 0
    for _ in range(ROUNDS_MAX):
        epoch = max(epoch, noted) + 1
        yield from perform(op.FreezePool(shard, state.epoch, epoch - 1))
        noted = max((yield from all_plan(op.NoteEpoch(other, shard.number, epoch) for other in others)), default=0)
        if noted < epoch:
            break
    else:
        raise counted_before(shard)
    peers = yield from all_plan(map(op.ReadPool, others))
    told: list[Transfer] = []
    for other, peer in zip(others, peers, strict=True):
        has_sent, has_received = (note_of(peer, kind, shard.number) for kind in ("sent", "received"))
        told += (replace(one, other=other.number, epoch=peer.epoch) for one in (has_sent, has_received))
        away = note_of(state, "away", other.number).units
        lacks = note_of(state, "sent", other.number).units - away > has_received.units
        lacks |= note_of(state, "received", other.number).units > has_sent.units
        if lacks and peer.frozen is None:
            yield from perform(op.FreezePool(other, peer.epoch))
            LOGGER.error("pool.frozen sku=%s found=%s seen_by=%s", other, (peer.epoch, peer.sequence), shard)
    return epoch, tuple(told)


def _brought_plan(shard: Shard, missing: int) -> Plan[int]:
    """Send units to a frozen shard that has sold more than it has; return how many. It takes them over at its thaw.

    Its units, and the transfer that brought them, were forgotten by both shards, so they are free in the other one.
    """
    brought = 0
    for other in (yield from directory_plan(shard.sku)).shards:
        if other == shard or brought >= missing:
            continue
        peer = yield from perform(op.ReadPool(other))
        if peer.frozen is None and not note_of(peer, "away", shard.number).units:
            transfer = yield from perform(op.SendUnits(other, shard.number, missing - brought))
            brought += transfer.units if transfer is not None else 0
    return brought


def reserved_plan(sku: str) -> Plan[dict[str, OrderRecord]]:
    """Find the reserved orders of a pool that does not change, page by page."""
    found: dict[str, OrderRecord] = {}
    cursor = None
    while cursor != 0:
        cursor, records = yield from perform(op.ScanOrders(sku, cursor or 0))
        found |= {record.order_id: record for record in records if record.state == "reserved"}
    return found


def held_again_plan(last: op.ThawPool, state: PoolState, records: Iterable[str] | None = None) -> Plan[None]:
    """Give the reserved orders of a frozen pool new holds, if it lost all holds. They may be in `records`."""
    if not state.reserved or (yield from perform(op.ScanKey(last.sku, "holds", 0))) != (0, ()):
        return
    if records is None:
        records = yield from reserved_plan(last.sku)
    for first in range(0, len(ids := tuple(records)), op.BATCH_MAX):
        page = ids[first : first + op.BATCH_MAX]
        yield from perform(replace(last, decided=tuple((order_id, "reserved") for order_id in page), is_last=False))


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

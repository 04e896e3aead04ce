"""The model of frozen pools. Memory forgets nothing, so only a test or the order database freezes a pool here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import (
    AnotherDatabase,
    PoolArchived,
    PoolFrozen,
    PoolNotFrozen,
    PoolNotGated,
    PoolUnverified,
    ThawGated,
)
from segmented.keys import shard_keys
from segmented.models import PINNED_UNTIL_MS, Frozen, Thawed, Verified
from segmented.models.submitted import SUBMITTED_UNTIL_MS
from segmented.protocol.assigning.model import check_worker
from segmented.protocol.freezing.wire import TooManySold, another_epoch, check_counts, counted_before
from segmented.protocol.pool.model_records import even_parts, pool_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock
    from segmented.models import OrderRecord
    from segmented.protocol.pool.model import PoolModel
    from segmented.protocol.pool.model_records import ModelPool

REFUSED: Final = frozenset(
    {
        op.AssignPool,
        op.Cancel,
        op.ClosePool,
        op.Confirm,
        op.DecideCart,
        op.Expire,
        op.ExpireDue,
        op.ForgetOrders,
        op.Grant,
        op.ListDue,
        op.LookAtShard,
        op.MendLedger,
        op.MendNumber,
        op.MendRecord,
        op.OpenCart,
        op.OpenPool,
        op.PinOrder,
        op.QueueOrders,
        op.ReceiveUnits,
        op.ReleaseGrant,
        op.RenewGrant,
        op.RenewWork,
        op.ReplayDead,
        op.Reserve,
        op.ReserveMany,
        op.Resize,
        op.Restock,
        op.SendUnits,
        op.SettleMany,
        op.SweepOutbox,
        op.TakeOrders,
        op.TrimLedger,
        op.VerifyPool,
        op.Withdraw,
    }
)
"""Operations that a frozen pool does not answer, nor one that is being archived: all but reads and what ends that."""


HOLD_MS: Final = 600_000
"""Milliseconds for which an order is held again whose hold was lost."""
OF_RECORDS: Final = frozenset({op.InspectOrders, op.ReadOrders})
"""Operations that find nothing in a pool that is not open, but fail for one that was archived."""
OF_CARTS: Final = frozenset({op.DecideCart, op.OpenCart})
"""The refused operations that a frozen pool answers all the same: the carts that it keeps are decided elsewhere."""


class FreezingModel:
    """Freezes pools and lets them sell again."""

    def __init__(self, clock: Clock, pools: PoolModel, publish: Callable[[str], None]) -> None:
        """Create a model for `pools` that calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._pools = pools
        self._publish = publish

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {
            op.FreezePool: self.freeze,
            op.VerifyPool: self.verify,
            op.RecountPool: self.recount,
            op.ThawPool: self.thaw,
            op.ScanHolds: self.scan_holds,
        }

    def check(self, operation: op.Operation[Any]) -> None:
        """Raise PoolFrozen, PoolArchived or PoolUnverified for an operation that such a pool does not answer."""
        sku = pool_named_by(operation)
        if type(operation) in OF_RECORDS and sku in self._pools.archived:
            raise self._pools.archived[sku][1]
        if type(operation) not in REFUSED or sku is None or not self._pools.has(sku):
            return
        pool = self._pools.found(sku)
        check_worker(pool, operation)
        self._freeze_if_incomplete(pool)
        if pool.frozen is not None and type(operation) not in OF_CARTS:
            raise frozen_error(pool, pool.frozen)
        if pool.archive is not None:
            raise PoolArchived(sku)
        if not pool.is_verified and type(operation) not in {op.OpenPool, op.VerifyPool, *OF_CARTS}:
            raise PoolUnverified(sku)

    def freeze(self, operation: op.FreezePool) -> Frozen:
        """Stop a pool."""
        pool = self._pools.found(operation.sku)
        if pool.epoch != operation.epoch:
            raise another_epoch(operation.sku, operation.epoch, pool.epoch)
        if pool.frozen is None:
            self._freeze(pool, (pool.epoch, pool.sequence))
        if pool.frozen is not None and pool.frozen[0] < operation.latest:
            pool.frozen = (operation.latest, pool.frozen[1])
        return Frozen(pool.sku, found=(pool.epoch, pool.sequence), seen=pool.frozen or (0, 0))

    def verify(self, operation: op.VerifyPool) -> Verified | str:
        """Compare a pool with what its order database has seen. Memory is one server, which is never another one."""
        pool = self._pools.found(operation.sku)
        if not pool.gated:
            raise PoolNotGated(pool.sku)
        if operation.sale_id and pool.sale_id not in {"", operation.sale_id}:
            raise AnotherDatabase(pool.sku)
        found, seen = (pool.epoch, pool.sequence), (operation.epoch, operation.sequence)
        if seen > found:
            self._freeze(pool, seen)
            raise frozen_error(pool, seen)
        if operation.epoch < pool.epoch:
            raise another_epoch(pool.sku, operation.epoch, pool.epoch)
        turn = str(pool.epoch)
        if not pool.is_verified and operation.turn != turn:
            return turn
        pool.sale_id = pool.sale_id or operation.sale_id
        if pool.is_verified:
            return Verified(pool.sku, replay=True)
        pool.is_verified = True
        return Verified(pool.sku, replay=False)

    def _freeze_if_incomplete(self, pool: ModelPool) -> None:
        if pool.frozen is None and pool.missing_key is not None:
            self._freeze(pool, (pool.epoch, pool.sequence))

    def _freeze(self, pool: ModelPool, seen: tuple[int, int]) -> None:
        pool.frozen = seen
        self._publish(shard_keys(pool.sku).freed)

    def recount(self, operation: op.RecountPool) -> bool:
        """Replace the numbers of a frozen gated pool by counted ones. Numbers in memory can always be read."""
        pool = self._pools.found(operation.sku)
        if not pool.gated:
            raise PoolNotGated(pool.sku)
        if pool.frozen is None:
            raise PoolNotFrozen(pool.sku)
        if (pool.reserved, pool.confirmed) != operation.before:
            return False
        pool.reserved, pool.confirmed = operation.reserved, operation.confirmed
        pool.restocked, pool.withdrawn, pool.lost = operation.restocked, operation.withdrawn, 0
        pool.sequence = max(pool.sequence, operation.sequence)
        self._publish(shard_keys(pool.sku).freed)
        return True

    def thaw(self, operation: op.ThawPool) -> Thawed | None:
        """End decided orders, and at last replace the numbers."""
        check_counts(operation)
        pool = self._pools.found(operation.sku)
        self._freeze_if_incomplete(pool)
        if pool.frozen is None:
            if pool.epoch == operation.epoch:
                return Thawed(pool.state(), replay=True)
            raise PoolNotFrozen(pool.sku)
        if pool.gated != operation.is_stored:
            raise ThawGated(pool.sku) if pool.gated else PoolNotGated(pool.sku)
        if operation.epoch <= max(pool.epoch, pool.frozen[0]):
            raise another_epoch(pool.sku, operation.epoch, pool.epoch)
        self._end(pool, operation)
        if not operation.is_last:
            return None
        return self._restart(pool, operation)

    def _end(self, pool: ModelPool, operation: op.ThawPool) -> None:
        decided = [
            (pool.orders[order_id], state)
            for order_id, state in dict(operation.decided).items()
            if order_id in pool.orders and pool.orders[order_id].state == "reserved"
        ]
        ending = [(record, state) for record, state in decided if state != "reserved"]
        found, counted = operation.reserved or (pool.reserved, pool.reserved)
        if operation.is_last and found != pool.reserved:
            raise counted_before(pool.sku)
        if not pool.orders:  # none of its units has a record any more
            pool.reserved = pool.confirmed = pool.lost = counted = 0
            pool.holds.clear()
        reserved = counted - sum(record.quantity for record, _ in ending)
        known = pool.state().stocked + _received(pool, operation) - _sent(pool, operation)
        stocked = known if operation.stocked is None else operation.stocked
        if operation.is_last and operation.sold + reserved > stocked:
            raise TooManySold(pool.sku, sold=operation.sold, stocked=stocked, reserved=reserved)
        if operation.is_last:
            pool.reserved = counted
        for record, state in ending:
            pool.reserved -= record.quantity
            if state == "cancelled":
                pool.add_bought(record.customer_id, -record.quantity)
            else:
                pool.confirmed += record.quantity
            pool.orders[record.order_id] = replace(record, state=state)
            pool.holds.pop(record.order_id, None)
            pool.leave_outbox(record.order_id)
        for record in (record for record, state in decided if state == "reserved"):
            pool.holds.setdefault(record.order_id, self._hold_again(pool, record))

    def _hold_again(self, pool: ModelPool, record: OrderRecord) -> int:
        if record.cart_home is not None:
            return PINNED_UNTIL_MS
        return SUBMITTED_UNTIL_MS if record.order_id in pool.outbox else int(self._clock.now() * 1_000) + HOLD_MS

    def _restart(self, pool: ModelPool, operation: op.ThawPool) -> Thawed:
        _take_over(pool, operation)
        kept = pool.state().stocked
        stocked = kept if operation.stocked is None else operation.stocked
        pool.opened += stocked - kept
        seen = pool.frozen or (0, 0)
        found = f"{pool.epoch}-{pool.sequence}"
        pool.epoch, pool.frozen, pool.is_verified = operation.epoch, None, not pool.gated
        pool.lost += operation.sold - pool.confirmed
        pool.available, pool.confirmed = stocked - operation.sold - pool.reserved, operation.sold
        parts = even_parts(pool.available, pool.segment_count)
        pool.stock = [dict(parts).get(segment, 0) for segment in range(pool.segment_count)]
        pool.sequence = max(pool.sequence, seen[1])
        pool.increases += 1
        numbers = (pool.segment_count, pool.opened, pool.restocked, pool.withdrawn, pool.sent, pool.received)
        note = (*numbers, pool.reserved, pool.confirmed, int(pool.is_closed), pool.chain)
        checkpoint = pool_entry(pool.available, parts, note=" ".join(map(str, note)))
        pool.ledger_start = self._pools.append(pool, "checkpoint", [checkpoint])
        pool.checkpoints = (pool.ledger_start,)
        thawed = pool_entry(operation.sold, (), note=f"at {found} seen {seen[0]}-{seen[1]} lost {pool.lost}")
        self._pools.append(pool, "thawed", [thawed])
        self._publish(shard_keys(pool.sku).freed)
        return Thawed(pool.state(), replay=False)

    def scan_holds(self, operation: op.ScanHolds) -> tuple[int, tuple[str, ...]]:
        """Read all holds at once; a pool that is not open has none."""
        return 0, tuple(self._pools.found(operation.sku).holds) if self._pools.has(operation.sku) else ()


def frozen_error(pool: ModelPool, seen: tuple[int, int]) -> PoolFrozen:
    """Return the error of a frozen pool."""
    found = pool.epoch, pool.sequence
    return PoolFrozen(pool.sku, found, seen, pool.missing_key, is_gated=pool.gated)


def _received(pool: ModelPool, operation: op.ThawPool) -> int:
    """Return the units that other shards have sent here, and the pool has forgotten."""
    notes = [one for one in operation.transfers if one.kind == "sent"]
    if operation.is_stored and notes:
        return sum(one.units for one in notes) - pool.received
    return sum(max(0, one.units - pool.received_from.get(one.other, (0, 0))[1]) for one in notes)


def _sent(pool: ModelPool, operation: op.ThawPool) -> int:
    """Return the units that other shards have received from here, and the pool has forgotten."""
    notes = [one for one in operation.transfers if one.kind == "received"]
    if operation.is_stored and notes:
        return sum(one.units for one in notes) - pool.sent
    return sum(max(0, one.units - pool.sent_to.get(one.other, (0, 0))[1]) for one in notes)


def _take_over(pool: ModelPool, operation: op.ThawPool) -> None:
    """Take over what other shards have sent here and received from here, where it is more than the pool knows."""
    pool.received += _received(pool, operation)
    pool.sent += _sent(pool, operation)
    if operation.is_stored:
        _take_stored(pool, operation)
        return
    for one in operation.transfers:
        own = pool.received_from if one.kind == "sent" else pool.sent_to
        number, units = own.get(one.other, (0, 0))
        if one.units > units:
            own[one.other] = (max(number, one.number), one.units)
            if one.kind == "received":
                pool.away.pop(one.other, None)
        if one.kind == "sent":
            pool.epochs_of[one.other] = max(pool.epochs_of.get(one.other, 0), one.epoch)


def _take_stored(pool: ModelPool, operation: op.ThawPool) -> None:
    """Replace the notes of transfers by those that the order database has stored."""
    for one in operation.transfers:
        own = pool.received_from if one.kind == "sent" else pool.sent_to
        last, known = own.get(one.other, (0, 0))
        if one.units == known:
            continue
        own[one.other] = (last + 1, one.units)
        if one.kind == "received":
            away = pool.away.pop(one.other, (0, 0))[1] + one.units - known
            if away > 0:
                pool.away[one.other] = (last + 1, away)


def pool_named_by(operation: op.Operation[Any]) -> str | None:
    """Return the pool, or the shard, that an operation is about."""
    names = (getattr(operation, name, None) for name in ("sku", "shard", "home"))
    return next(filter(None, names), None) or getattr(getattr(operation, "cart", None), "home", None)

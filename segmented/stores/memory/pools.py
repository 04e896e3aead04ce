"""The model of stock pools: what the scripts do, in the order in which they do it, without their key juggling."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from segmented.errors import OrderMismatch, OrderUnknown, PoolGated, PoolMissing
from segmented.keys import shard_keys
from segmented.models import (
    AlreadyOpen,
    Busy,
    EntryKind,
    Granted,
    LedgerEntry,
    Lost,
    Opened,
    OrderRecord,
    PoolState,
    Renewed,
    Reserved,
    Settled,
    SoldOut,
    Superseded,
)
from segmented.stores.memory.pool_records import (
    ModelPool,
    gathered,
    new_record,
    pool_state,
    reserved_answer,
    settled_answer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented import operations as op
    from segmented.clock import Clock

PROBES_MAX = 16
FENCE_BITS = 32


class PoolModel:
    """Pools by sku."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Tell `publish` each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._pools: dict[str, ModelPool] = {}

    # --- opening and reading ---

    def open(self, operation: op.OpenPool) -> Opened | AlreadyOpen:
        """Open once."""
        if pool := self._pools.get(operation.sku):
            return AlreadyOpen(pool_state(pool))
        base, extra = divmod(operation.stock, operation.segment_count)
        stock = [base + (1 if segment < extra else 0) for segment in range(operation.segment_count)]
        pool = ModelPool(operation.sku, operation.epoch, operation.gated, operation.stock, stock)
        pool.available = operation.stock
        pool.free = dict.fromkeys(range(operation.segment_count), 0)
        self._pools[operation.sku] = pool
        self._append(pool, "opened", None, operation.stock)
        return Opened(pool_state(pool))

    def read(self, operation: op.ReadPool) -> PoolState:
        """Read totals and units a segment."""
        return pool_state(self._pool(operation.sku))

    def read_orders(self, operation: op.ReadOrders) -> tuple[OrderRecord | None, ...]:
        """Read records; a pool that is not open has none."""
        pool = self._pools.get(operation.sku)
        return tuple(pool.orders.get(order_id) if pool else None for order_id in operation.order_ids)

    def scan_orders(self, operation: op.ScanOrders) -> tuple[int, tuple[OrderRecord, ...]]:
        """Read all records at once; a pool that is not open has none."""
        pool = self._pools.get(operation.sku)
        return 0, tuple(pool.orders.values()) if pool else ()

    def read_ledger(self, operation: op.ReadLedger) -> tuple[LedgerEntry, ...]:
        """Read entries after a sequence number, which is also their index."""
        return tuple(self._pool(operation.sku).ledger[operation.after : operation.after + operation.limit])

    def list_due(self, operation: op.ListDue) -> tuple[str, ...]:
        """Name orders whose hold has lapsed."""
        return tuple(self._due(self._pool(operation.sku), operation.limit))

    # --- taking ---

    def reserve(self, operation: op.Reserve) -> Reserved | SoldOut | Busy | Settled:
        """Take units without a lock."""
        pool, order = self._pool(operation.sku), operation.order
        record = self._known(pool, order.order_id, order.fingerprint)
        if record is not None:
            if record.state != "reserved":
                return settled_answer(record, replay=True)
            hold_until_ms = max(record.hold_until_ms, self._now_ms() + operation.hold_ms)
            pool.orders[order.order_id] = replace(record, hold_until_ms=hold_until_ms)
            return reserved_answer(pool, record, replay=True)
        start = pool.sequence % len(pool.stock)  # as found, before due holds came back
        if refusal := self._want_of_units(pool, order.order_id, order.quantity):
            return refusal
        parts = gathered(pool, start, order.quantity)
        hold_until = self._now_ms() + operation.hold_ms
        record = self._take(pool, new_record(order, parts[0][0], parts, hold_until))
        return reserved_answer(pool, record, replay=False)

    def grant(self, operation: op.Grant) -> Granted | SoldOut | Busy | Settled:
        """Take units and a segment's lock."""
        pool, order = self._pool(operation.sku), operation.order
        # 1. a known order
        record = self._known(pool, order.order_id, order.fingerprint)
        if record is not None:
            if answer := self._answer_of_known(pool, record, operation):
                return answer
        # 2. too few units
        elif refusal := self._want_of_units(pool, order.order_id, order.quantity):
            if operation.keep_refusal and isinstance(refusal, SoldOut):
                kept = replace(new_record(order, -1, (), 0), state="refused")
                kept = replace(kept, sequence=self._append(pool, "refused", kept, kept.quantity))
                pool.orders[order.order_id] = kept
                return replace(refusal, sequence=kept.sequence)
            return refusal
        # 3. a free segment
        segment = self._free_segment(pool)
        if segment is None:
            return Busy(order.order_id, pool.sequence, self._free_in_ms(pool))
        # 4. units, from this segment first
        now_ms = self._now_ms()
        pool.fence += 1
        pool.locks[segment] = (operation.holder_id, now_ms + operation.ttl_ms)
        pool.free[segment] = now_ms + operation.ttl_ms
        again = record
        if again is None:
            again = new_record(order, segment, gathered(pool, segment, order.quantity), 0)
        leased = replace(
            again,
            segment=segment,
            holder_id=operation.holder_id,
            fencing_token=(pool.epoch << FENCE_BITS) + pool.fence,
            hold_until_ms=max(again.hold_until_ms, now_ms + operation.hold_ms),
        )
        if record is None:
            return self._granted(pool, self._take(pool, leased), replay=False)
        leased = replace(leased, sequence=self._append(pool, "granted", leased, leased.quantity))
        pool.orders[order.order_id] = leased
        return self._granted(pool, leased, replay=True)

    def _answer_of_known(
        self, pool: ModelPool, record: OrderRecord, operation: op.Grant
    ) -> Granted | SoldOut | Busy | Settled | None:
        """Answer a repeat; None when the order's lease has lapsed, or it never had one."""
        if record.state == "refused":
            return SoldOut(
                record.order_id, record.quantity, pool.available, pool.reserved, record.sequence, replay=True
            )
        if record.state != "reserved":
            return settled_answer(record, replay=True)
        lease = self._lease(pool, record)
        if lease is None:
            return None
        if record.holder_id != operation.holder_id:
            return Busy(record.order_id, pool.sequence, lease[1] - self._now_ms(), is_in_hand=True)
        return self._granted(pool, self._renewed(pool, record, operation.ttl_ms, operation.hold_ms), replay=True)

    def renew(self, operation: op.RenewGrant) -> Renewed | Lost:
        """Push the end of a grant's lease and hold out."""
        pool, record = self._found(operation.sku, operation.order_id)
        if record.state != "reserved" or record.holder_id != operation.holder_id or not self._lease(pool, record):
            return Lost()
        self._renewed(pool, record, operation.ttl_ms, operation.hold_ms)
        return Renewed(operation.ttl_ms)

    # --- deciding ---

    def confirm(self, operation: op.Confirm) -> Settled:
        """Make it final."""
        pool, record = self._found(operation.sku, operation.order_id)
        is_holders = operation.holder_id in {None, record.holder_id}
        if record.state != "reserved":
            if is_holders:
                self._free(pool, record)
            return settled_answer(record, replay=True)
        settled = self._settle(pool, record, "confirmed", keeps_segment=not is_holders)
        return settled_answer(settled, replay=False)

    def cancel(self, operation: op.Cancel) -> Settled | Superseded:
        """Give back on purpose."""
        pool, record = self._found(operation.sku, operation.order_id)
        if record.state != "reserved":
            return settled_answer(record, replay=True)
        if operation.holder_id is not None and record.holder_id != operation.holder_id:
            return Superseded(record.order_id, record.fencing_token or 0)
        if pool.gated and not operation.voided:
            raise PoolGated(operation.sku, operation.order_id)
        return settled_answer(self._settle(pool, record, "cancelled"), replay=False)

    def expire(self, operation: op.Expire) -> Settled | None:
        """Give back what lapsed."""
        pool, record = self._found(operation.sku, operation.order_id)
        if record.state != "reserved":
            return settled_answer(record, replay=True)
        if record.hold_until_ms > self._now_ms() or self._lease(pool, record):
            return None
        if pool.gated and not operation.voided:
            raise PoolGated(operation.sku, operation.order_id)
        return settled_answer(self._settle(pool, record, "expired"), replay=False)

    # --- pieces ---

    def _now_ms(self) -> int:
        return int(self._clock.now() * 1000)

    def _pool(self, sku: str) -> ModelPool:
        if sku not in self._pools:
            raise PoolMissing(sku)
        return self._pools[sku]

    def _found(self, sku: str, order_id: str) -> tuple[ModelPool, OrderRecord]:
        pool = self._pool(sku)
        if order_id not in pool.orders:
            raise OrderUnknown(order_id)
        return pool, pool.orders[order_id]

    def _known(self, pool: ModelPool, order_id: str, fingerprint: str) -> OrderRecord | None:
        record = pool.orders.get(order_id)
        if record is not None and record.fingerprint != fingerprint:
            raise OrderMismatch(order_id)
        return record

    def _append(self, pool: ModelPool, kind: EntryKind, record: OrderRecord | None, quantity: int) -> int:
        pool.sequence += 1
        pool.ledger.append(
            LedgerEntry(
                epoch=pool.epoch,
                sequence=pool.sequence,
                kind=kind,
                at_us=int(self._clock.now() * 1_000_000),
                order_id=record.order_id if record else None,
                quantity=quantity,
                parts=record.parts if record else (),
                segment=record.segment if record and record.segment >= 0 else None,
                fencing_token=record.fencing_token if record else None,
            )
        )
        return pool.sequence

    def _lease(self, pool: ModelPool, record: OrderRecord) -> tuple[str, int] | None:
        lease = pool.locks.get(record.segment)
        if lease is None or lease[0] != record.holder_id or lease[1] <= self._now_ms():
            return None
        return lease

    def _renewed(self, pool: ModelPool, record: OrderRecord, ttl_ms: int, hold_ms: int) -> OrderRecord:
        now_ms = self._now_ms()
        pool.locks[record.segment] = (record.holder_id or "", now_ms + ttl_ms)
        pool.free[record.segment] = now_ms + ttl_ms
        renewed = replace(record, hold_until_ms=max(record.hold_until_ms, now_ms + hold_ms))
        pool.orders[record.order_id] = renewed
        return renewed

    def _due(self, pool: ModelPool, limit: int) -> list[str]:
        now_ms = self._now_ms()
        due = [
            record for record in pool.orders.values() if record.state == "reserved" and record.hold_until_ms <= now_ms
        ]
        return [record.order_id for record in sorted(due, key=lambda r: (r.hold_until_ms, r.order_id))[:limit]]

    def _want_of_units(self, pool: ModelPool, order_id: str, quantity: int) -> SoldOut | Busy | None:
        if pool.available >= quantity:
            return None
        if not pool.gated:
            due = self._due(pool, PROBES_MAX + 1)
            for due_id in due[:PROBES_MAX]:
                self._settle(pool, pool.orders[due_id], "expired")
            if pool.available >= quantity:
                return None
            if len(due) > PROBES_MAX:
                return Busy(order_id, pool.sequence, 0)
        return SoldOut(order_id, quantity, pool.available, pool.reserved, pool.sequence)

    def _free_segment(self, pool: ModelPool) -> int | None:
        now_ms = self._now_ms()
        free = [segment for segment in pool.free if segment not in pool.locks or pool.locks[segment][1] <= now_ms]
        return min(free, key=lambda segment: (pool.free[segment], str(segment)), default=None)

    def _free_in_ms(self, pool: ModelPool) -> int:
        return max(0, min(pool.free.values()) - self._now_ms())

    def _granted(self, pool: ModelPool, record: OrderRecord, *, replay: bool) -> Granted:
        return Granted(
            order_id=record.order_id,
            quantity=record.quantity,
            segment=record.segment,
            parts=record.parts,
            holder_id=record.holder_id or "",
            fencing_token=record.fencing_token or 0,
            epoch=pool.epoch,
            sequence=record.sequence,
            free_in_ms=self._free_in_ms(pool),
            replay=replay,
        )

    def _take(self, pool: ModelPool, record: OrderRecord) -> OrderRecord:
        for segment, units in record.parts:
            pool.stock[segment] -= units
        pool.available -= record.quantity
        pool.reserved += record.quantity
        record = replace(record, sequence=self._append(pool, "reserved", record, record.quantity))
        pool.orders[record.order_id] = record
        return record

    def _free(self, pool: ModelPool, record: OrderRecord) -> None:
        if self._lease(pool, record):
            del pool.locks[record.segment]
            pool.free[record.segment] = self._now_ms()
            self._publish(shard_keys(pool.sku).freed)

    def _settle(
        self,
        pool: ModelPool,
        record: OrderRecord,
        state: Literal["confirmed", "cancelled", "expired"],
        *,
        keeps_segment: bool = False,
    ) -> OrderRecord:
        if state == "confirmed":
            pool.confirmed += record.quantity
        else:
            for segment, units in record.parts:
                pool.stock[segment] += units
            pool.available += record.quantity
        pool.reserved -= record.quantity
        if not keeps_segment:
            self._free(pool, record)
        settled = replace(record, state=state, sequence=self._append(pool, state, record, record.quantity))
        pool.orders[record.order_id] = settled
        return settled

"""The model of stock pools, its books: opening, reading, restocking, resizing, closing, and ending reservations."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from segmented import protocol as op
from segmented.errors import (
    ChangeMismatch,
    EpochEnded,
    InvalidInput,
    OrderQueued,
    OrderUnknown,
    PoolGated,
    PoolInShards,
)
from segmented.keys import shard_keys
from segmented.ledger_lines import SOLD_BEFORE, UNHEARD, line_of, step_of
from segmented.models import (
    PINNED_UNTIL_MS,
    UNITS_MAX,
    AlreadyOpen,
    Busy,
    Closed,
    LedgerEntry,
    Opened,
    OrderRecord,
    PoolClosed,
    PoolState,
    Resized,
    Restocked,
    Settled,
    SoldOut,
    TooFew,
)
from segmented.models.orders import check_content
from segmented.models.shards import no_keys_of
from segmented.protocol.pool.model_records import (
    ORDER_WORK,
    ModelPool,
    Room,
    entry_of,
    even_parts,
    is_plain,
    part_count,
    pool_entry,
    settled_answer,
)
from segmented.protocol.pool.wire import too_many_units

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from segmented.clock import Clock
    from segmented.errors import PoolArchived
    from segmented.models import EntryKind, Order, OrderState
    from segmented.models.pools import LedgerStep

DUE_MAX = 16
DUE_IN_ALL_MAX = 160
"""Maximum due holds that one operation expires when units are short: for one order, and for a batch."""
PAGE_BYTES = 262_144
"""Bytes of ledger entries after which a page has no further one."""
ENTRY_BYTES = len("kindat_uslineschain") + 16 - 1
"""Bytes of an entry's names and digest, less the newline that its first line does not have."""


class PoolBooks:
    """Pools by sku."""

    def __init__(self, clock: Clock, publish: Callable[[str], None]) -> None:
        """Create a model without pools that calls `publish` with each channel that gets a message."""
        self._clock = clock
        self._publish = publish
        self._pools: dict[str, ModelPool] = {}
        self.in_shards: set[str] = set()
        """Skus with a directory of shards."""
        self.archived: dict[str, tuple[int, PoolArchived]] = {}
        """Notes of archived pools: the last epoch, and the error that says where the archive is."""

    # --- opening, reading, changing ---

    def open(self, operation: op.OpenPool) -> Opened | AlreadyOpen:
        """Open a pool once."""
        if pool := self._pools.get(operation.sku):
            return AlreadyOpen(pool.state())
        if operation.sku in self.archived and self.archived[operation.sku][0] >= operation.epoch:
            raise self.archived[operation.sku][1]
        if operation.sku in self.in_shards:
            raise PoolInShards(operation.sku)
        if operation.profile is not None and operation.profile.waits:
            self.check_profile(op.CheckProfile(operation.sku, operation.profile))
        self.archived.pop(operation.sku, None)
        sku, count, limit = operation.sku, operation.segment_count, operation.limit_per_customer
        parts = even_parts(operation.stock, count)
        stock = [dict(parts).get(segment, 0) for segment in range(count)]
        sale_id = operation.sale_id if operation.gated else ""
        pool = ModelPool(sku, operation.epoch, operation.gated, operation.stock, stock, limit, sale_id)
        pool.available, pool.assignment = operation.stock, operation.assignment
        pool.free = dict.fromkeys(range(count), 0)
        self._pools[operation.sku] = pool
        self.append(pool, "opened", [pool_entry(operation.stock, parts, note=str(count))])
        return Opened(pool.state())

    def check_profile(self, operation: op.CheckProfile) -> None:
        """Refuse a profile that waits: a memory store has neither replicas nor a disk."""
        message = (
            f"pool {operation.sku!r} cannot be opened with profile {operation.profile}: a memory store has no replicas "
            "and no disk; leave the profile out, or use a RedisStore"
        )
        raise InvalidInput(message)

    def read(self, operation: op.ReadPool) -> PoolState:
        """Read totals and units by segment."""
        pool = self.found(operation.sku)
        relayed = pool.relayed
        waiting = (entry.at_us for entry in pool.ledger if relayed and (entry.epoch, entry.sequence) > relayed)
        oldest_us = next(waiting, None)
        age_ms = 0 if oldest_us is None else max(0, int(self._clock.now() * 1_000) - oldest_us // 1_000)
        return replace(pool.state(pool.transfers), relayed=relayed, relay_age_ms=age_ms)

    def read_orders(self, operation: op.ReadOrders) -> tuple[OrderRecord | None, ...]:
        """Read records; a pool that is not open has none."""
        pool = self._pools.get(operation.sku)
        return tuple(pool.record_of(order_id) if pool else None for order_id in operation.order_ids)

    def scan_orders(self, operation: op.ScanOrders) -> tuple[int, tuple[OrderRecord, ...]]:
        """Read all records at once; a pool that is not open has none."""
        pool = self._pools.get(operation.sku)
        return 0, tuple(pool.orders.values()) if pool else ()

    def read_ledger(self, operation: op.ReadLedger) -> tuple[LedgerEntry, ...]:
        """Read entries by their sequence numbers."""
        pool = self.found(operation.sku)
        after = (pool.epoch if operation.epoch is None else operation.epoch, operation.after)
        page: list[LedgerEntry] = []
        size = count = 0
        for entry in pool.ledger:
            if (entry.epoch, entry.sequence) <= after:
                continue
            is_new = not page or page[-1].sequence != entry.sequence
            count += is_new
            if count > operation.limit or (is_new and size >= PAGE_BYTES):
                break
            page.append(entry)
            size += len(line_of(entry).encode()) + 1
            size += len(f"{entry.kind}{entry.at_us}") + ENTRY_BYTES if is_new else 0
        return tuple(page)

    def read_steps(self, operation: op.ReadSteps) -> tuple[LedgerStep, ...]:
        """Read entries by their sequence numbers, those of each in one piece."""
        entries = self.read_ledger(op.ReadLedger(operation.sku, operation.after, operation.limit, operation.epoch))
        return tuple(step_of(tuple(group)) for _, group in groupby(entries, key=attrgetter("sequence")))

    def list_due(self, operation: op.ListDue) -> tuple[str, ...]:
        """List orders whose hold has expired."""
        return tuple(self._due(self.found(operation.sku), operation.limit))

    def restock(self, operation: op.Restock) -> Restocked | Closed:
        """Add units, once per change id."""
        pool = self._in_epoch(operation)
        if (before := self._changed_before(pool, operation.change_id, "restocked", operation.units)) is not None:
            return before
        if pool.is_closed:
            return Closed(operation.change_id)
        left = UNITS_MAX - pool.opened - pool.restocked
        if operation.units > left:
            raise too_many_units(pool.sku, operation.units, left)
        parts = even_parts(operation.units, pool.segment_count)
        for segment, units in parts:
            pool.stock[segment] += units
        pool.available += operation.units
        pool.restocked += operation.units
        return self._change(pool, operation.change_id, "restocked", pool_entry(operation.units, parts))

    def withdraw(self, operation: op.Withdraw) -> Restocked | TooFew:
        """Remove free units, once per change id."""
        pool = self._in_epoch(operation)
        if (before := self._changed_before(pool, operation.change_id, "withdrawn", operation.units)) is not None:
            return before
        if pool.available < operation.units:
            return TooFew(operation.change_id, operation.units, pool.available)
        parts = pool.gather(pool.cursor, operation.units)
        pool.available -= operation.units
        pool.withdrawn += operation.units
        return self._change(pool, operation.change_id, "withdrawn", pool_entry(operation.units, parts))

    def resize(self, operation: op.Resize) -> Resized:
        """Change the number of segments."""
        pool, count = self.found(operation.sku), operation.segment_count
        before = pool.segment_count
        if before == count:
            return Resized(pool.state(), replay=True)
        parts = even_parts(pool.available, count)
        pool.stock = [dict(parts).get(segment, 0) for segment in range(count)]
        pool.free = {segment: at_ms for segment, at_ms in pool.free.items() if segment < count}
        for segment in range(before, count):
            lapses_at = pool.locks[segment][1] if segment in pool.locks else 0
            pool.free[segment] = max(self._now_ms(), lapses_at)
        if count > before:
            self._publish(shard_keys(pool.sku).freed)
        pool.cursor = 0
        self.append(pool, "resized", [pool_entry(pool.available, parts, note=str(count))])
        return Resized(pool.state(), replay=False)

    def close(self, operation: op.ClosePool) -> PoolClosed:
        """Stop taking new orders."""
        pool = self.found(operation.sku)
        if pool.is_closed:
            return PoolClosed(pool.state(), replay=True)
        pool.is_closed = True
        self.append(pool, "closed", [pool_entry(pool.available, ())])
        return PoolClosed(pool.state(), replay=False)

    def _in_epoch(self, operation: op.Restock | op.Withdraw) -> ModelPool:
        pool = self.found(operation.sku)
        if operation.epoch not in {None, pool.epoch}:
            raise EpochEnded(pool.sku, pool.epoch)
        return pool

    def _changed_before(self, pool: ModelPool, change_id: str, kind: EntryKind, units: int) -> Restocked | None:
        before = pool.changes.get(change_id)
        if before is None:
            return None
        if before[:2] != (kind, units):
            raise ChangeMismatch(pool.sku, change_id)
        return Restocked(change_id, units, before[2], pool.available, replay=True)

    def _change(self, pool: ModelPool, change_id: str, kind: EntryKind, entry: LedgerEntry) -> Restocked:
        sequence = self.append(pool, kind, [replace(entry, order_id=change_id)])
        pool.changes[change_id] = (kind, entry.quantity, sequence)
        return Restocked(change_id, entry.quantity, sequence, pool.available, replay=False)

    def pin(self, operation: op.PinOrder) -> OrderState:
        """Keep a reservation until it is confirmed or cancelled."""
        pool, record = self._found(operation.sku, operation.order_id)
        if record.state == "reserved" and pool.gated:
            raise PoolGated(pool.sku, record.order_id, "store")
        if record.state == "reserved":
            pool.orders[record.order_id] = replace(record, cart_home=operation.home)
            pool.holds[record.order_id] = PINNED_UNTIL_MS
        return record.state

    # --- ending reservations ---

    def expire_due(self, operation: op.ExpireDue) -> tuple[tuple[Settled, ...], bool]:
        """Expire due holds."""
        pool = self.found(operation.sku)
        if pool.gated:
            raise PoolGated(operation.sku, None)
        settled, is_more_due = self._expire_due(pool, operation.limit, Room())
        return tuple(settled_answer(record, replay=False) for record in settled), is_more_due

    def _expire_due(self, pool: ModelPool, limit: int, room: Room) -> tuple[list[OrderRecord], bool]:
        due = self._due(pool, limit + 1)
        lapsed: list[OrderRecord] = []
        is_more_due = len(due) > limit
        for order_id in due[:limit]:
            if room.is_full:
                is_more_due = True
                break
            record = pool.orders[order_id]
            room.work += 0 if is_plain(record) else ORDER_WORK + part_count(record)
            if not self._lease(pool, record):
                lapsed.append(record)
        return self._settle(pool, lapsed, "expired") if lapsed else [], is_more_due

    def _settle(
        self,
        pool: ModelPool,
        records: Sequence[OrderRecord],
        state: Literal["confirmed", "cancelled", "expired"],
        *,
        keeps: Collection[str] = (),
        unheard: bool = False,
        sold_before: bool = False,
        quiet: bool = False,
    ) -> list[OrderRecord]:
        """End reservations in one step; the segments of the orders in `keeps` stay with their holders."""
        for record in records:
            if state == "confirmed":
                pool.confirmed += record.quantity
            else:
                pool.put_back(record)
            pool.reserved -= record.quantity
            if record.order_id not in keeps:
                self._free(pool, record, quiet=quiet)
        note = UNHEARD if unheard else SOLD_BEFORE if sold_before else ""
        sequence = self.append(pool, state, [replace(entry_of(record), note=note) for record in records])
        if unheard:
            pool.undone.update(record.order_id for record in records)
        if sold_before:
            pool.sold_before.update(record.order_id for record in records)
        told: OrderState = "confirmed" if sold_before else state
        settled = [replace(record, state=told, sequence=sequence) for record in records]
        for record in settled:
            pool.orders[record.order_id] = record
            pool.holds.pop(record.order_id, None)
            pool.leave_outbox(record.order_id, is_dead_kept=state == "expired")
        return settled

    def _want_of_units(self, pool: ModelPool, order: Order, quantity: int, room: Room) -> SoldOut | Busy | None:
        """Return the refusal of `quantity` units; due holds are expired first, unless another party decides them."""
        if pool.available >= quantity:
            return None
        is_more_due = self.give_back_some(pool, room)
        if pool.available >= quantity:
            return None
        if is_more_due:
            return Busy(order.order_id, pool.sequence, 0)
        return SoldOut(order.order_id, order.quantity, pool.available, pool.reserved, pool.sequence, epoch=pool.epoch)

    def give_back_some(self, pool: ModelPool, room: Room) -> bool:
        """Expire some due holds before an order is refused; True if more may be due."""
        if pool.gated or room.is_nothing_due:
            return False
        if room.due_so_far >= DUE_IN_ALL_MAX:
            return True
        room.due_so_far += DUE_MAX
        _, is_more_due = self._expire_due(pool, DUE_MAX, room)
        room.is_nothing_due = not is_more_due
        return is_more_due

    # --- helpers ---

    def _now_ms(self) -> int:
        return int(self._clock.now() * 1000)

    def has(self, sku: str) -> bool:
        """Return whether the pool is open."""
        return sku in self._pools

    def found(self, sku: str) -> ModelPool:
        """Return an open pool. Raises PoolMissing."""
        if sku not in self._pools:
            raise self.archived[sku][1] if sku in self.archived else no_keys_of(sku)
        return self._pools[sku]

    def remove(self, sku: str, note: PoolArchived) -> None:
        """Remove an archived pool, but for a note of its archive."""
        self.archived[sku] = self._pools.pop(sku).epoch, note

    def _found(self, sku: str, order_id: str) -> tuple[ModelPool, OrderRecord]:
        pool = self.found(sku)
        if order_id not in pool.orders:
            raise OrderUnknown(order_id)
        return pool, pool.orders[order_id]

    def _found_to_end(self, sku: str, order_id: str) -> tuple[ModelPool, OrderRecord]:
        pool = self.found(sku)
        if pool.queued(order_id):
            raise OrderQueued(order_id)
        return self._found(sku, order_id)

    def _known(self, pool: ModelPool, order: Order) -> OrderRecord | None:
        """Return the record of an order, or None; the id of one whose caller was gone can be used again."""
        record = None if order.order_id in pool.undone else pool.orders.get(order.order_id)
        if record is not None:
            check_content(order, record.asked, record.customer_id)
        if (queued := pool.queued(order.order_id)) is not None:
            check_content(order, queued.quantity, queued.customer_id)
        return record

    def append(self, pool: ModelPool, kind: EntryKind, entries: Sequence[LedgerEntry]) -> int:
        """Add the changes of one step to the ledger, and return their sequence number."""
        return pool.append(kind, int(self._clock.now() * 1_000_000), entries)

    def next_fence(self, pool: ModelPool, above: int) -> int:
        """Return the token of a new grant: above the last one and `above`, and not behind the clock in microseconds."""
        pool.fence = max(pool.fence + 1, above + 1, int(self._clock.now() * 1_000_000))
        return pool.fence

    def _lease(self, pool: ModelPool, record: OrderRecord) -> tuple[str, int] | None:
        lease = pool.locks.get(record.segment)
        if lease is None or lease[0] != record.holder_id or lease[1] <= self._now_ms():
            return None
        return lease

    def _free(self, pool: ModelPool, record: OrderRecord, *, quiet: bool = False) -> None:
        if self._lease(pool, record):
            del pool.locks[record.segment]
            pool.note_free_at(record.segment, self._now_ms())
            if not quiet:
                self._publish(shard_keys(pool.sku).freed)

    def _due(self, pool: ModelPool, limit: int) -> list[str]:
        now_ms = self._now_ms()
        due = sorted((until_ms, order_id) for order_id, until_ms in pool.holds.items() if until_ms <= now_ms)
        return [order_id for _, order_id in due[:limit]]

"""The model of stock pools, audit part: reading all records, repairing them, and trimming the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import PoolDrifted
from segmented.ledger_lines import Checkpoint, parse_record, record_text
from segmented.models import PINNED_UNTIL_MS, Differing, Inspected, Mended, Outrun, Sound, Trimmed
from segmented.protocol.pool.model_records import pool_entry
from segmented.protocol.relay.wire import not_relayed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from segmented.clock import Clock
    from segmented.models import LedgerEntry
    from segmented.models.pools import ScannedKey
    from segmented.protocol.pool.model_records import ModelPool

TAIL_MAX: Final = 1_000
DELETED_MAX: Final = 10_000
FREE_SIGNS: Final = {
    "reserved": -1,
    "cancelled": 1,
    "expired": 1,
    "restocked": 1,
    "withdrawn": -1,
    "sent": -1,
    "received": 1,
}
SIGNS: Final[dict[str, dict[str, int]]] = {
    "available": FREE_SIGNS,
    "segment": FREE_SIGNS,
    "reserved": {"reserved": 1, "confirmed": -1, "cancelled": -1, "expired": -1},
    "confirmed": {"confirmed": 1},
    "restocked": {"restocked": 1},
    "withdrawn": {"withdrawn": 1},
    "sent": {"sent": 1},
    "received": {"received": 1},
    "customer": {"reserved": 1, "cancelled": -1, "expired": -1},
}
"""The amount that one unit of each kind of change adds to each number."""
SPREADS_ANEW: Final = {"resized": {"segment", "segment_count"}, "closed": {"closed"}}


class PoolAudits:
    """Audits pools, repairs their numbers and records, and trims their ledgers."""

    def __init__(self, clock: Clock, pool_of: Callable[[str], ModelPool], pools: Mapping[str, ModelPool]) -> None:
        """Create the audit of the pools that `pool_of` returns or raises for."""
        self._clock = clock
        self._pool = pool_of
        self._pools = pools

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {
            op.InspectOrders: self.inspect,
            op.ScanIds: self.scan_ids,
            op.ScanPinned: self.scan_pinned,
            op.ScanChanges: self.scan_changes,
            op.ReadCustomers: self.read_customers,
            op.ReadLedgerStart: self.read_start,
            op.MendNumber: self.mend_number,
            op.MendRecord: self.mend_record,
            op.MendLedger: self.mend_ledger,
            op.TrimLedger: self.trim,
        }

    # --- reading ---

    def inspect(self, operation: op.InspectOrders) -> tuple[Inspected, ...]:
        """Read records and holds; a pool that is not open has none."""
        pool = self._pools.get(operation.sku)
        if pool is None:
            return tuple(Inspected(order_id, None, None) for order_id in operation.order_ids)
        return tuple(
            Inspected(order_id, _raw(pool, "order", order_id), pool.holds.get(order_id))
            for order_id in operation.order_ids
        )

    def scan_ids(self, operation: op.ScanIds) -> tuple[int, tuple[str, ...]]:
        """Read all ids at once."""
        pool = self._pools.get(operation.sku)
        if pool is None:
            return 0, ()
        kept: dict[ScannedKey, Iterable[str]] = {"orders": pool.orders, "holds": pool.holds, "customers": pool.bought}
        return 0, tuple(kept[operation.key])

    def scan_pinned(self, operation: op.ScanPinned) -> tuple[int, tuple[str, ...]]:
        """Read all ids at once."""
        pool = self._pools.get(operation.sku)
        holds = pool.holds if pool else {}
        return 0, tuple(order_id for order_id, until_ms in holds.items() if until_ms == PINNED_UNTIL_MS)

    def scan_changes(self, operation: op.ScanChanges) -> tuple[int, tuple[tuple[str, str], ...]]:
        """Read all notes at once."""
        pool = self._pools.get(operation.sku)
        if pool is None:
            return 0, ()
        return 0, tuple((change_id, _raw(pool, "change", change_id) or "") for change_id in pool.changes)

    def read_customers(self, operation: op.ReadCustomers) -> tuple[int, tuple[int, ...]]:
        """Read the customers' units."""
        pool = self._pool(operation.sku)
        return pool.sequence, tuple(pool.bought.get(customer_id, 0) for customer_id in operation.customer_ids)

    def read_start(self, operation: op.ReadLedgerStart) -> int:
        """Read the sequence number at which the ledger begins."""
        pool = self._pools.get(operation.sku)
        return pool.ledger_start if pool else 1

    # --- repairing ---

    def mend_number(self, operation: op.MendNumber) -> Mended | Sound | Outrun:
        """Add the difference to the number that the ledger implies."""
        pool = self._pool(operation.sku)
        kind, name = operation.kind, operation.name
        tail = self._tail(pool, operation.after)
        if tail is None:
            return Outrun()
        signs = SIGNS.get(name if kind == "total" else kind, {})
        expected = operation.expected
        for entry in tail:
            if SPREADS_ANEW.get(entry.kind, set()) & {kind, name}:
                return Outrun()
            expected += signs.get(entry.kind, 0) * _units_in(pool, entry, operation)
        difference = expected - _number(pool, operation)
        if difference == 0:
            return Sound()
        note = f"{kind} {name} by {difference}"
        sequence = self._append(pool, "repaired", pool_entry(abs(difference), (), note=note))
        _add(pool, operation, difference)
        return Mended(sequence)

    def mend_record(self, operation: op.MendRecord) -> Mended | Sound | Differing | Outrun:
        """Write or remove a record together with its hold."""
        pool, record_id, wanted = self._pool(operation.sku), operation.record_id, operation.wanted
        tail = self._tail(pool, operation.after)
        if tail is None or any(entry.order_id == record_id for entry in tail):
            return Outrun()
        is_order = operation.kind == "order"
        found = _raw(pool, operation.kind, record_id)
        wants_hold = is_order and wanted is not None and wanted.startswith("r\t")
        if found == wanted and (not is_order or (record_id in pool.holds) == wants_hold):
            return Sound()
        if found not in (wanted, operation.seen):
            return Differing()
        what = "hold written" if wants_hold else "hold removed"
        if found != wanted:
            what = "record removed" if wanted is None else "record written"
        sequence = self._append(pool, "repaired", pool_entry(0, (), change_id=record_id, note=what))
        _write(pool, operation)
        if wants_hold:
            pool.holds.setdefault(record_id, int(self._clock.now() * 1000) + operation.hold_ms)
        elif is_order:
            pool.holds.pop(record_id, None)
        return Mended(sequence)

    # --- the ledger ---

    def mend_ledger(self, operation: op.MendLedger) -> Sound:
        """Find nothing to repair: no other program writes to this ledger."""
        self._pool(operation.sku)
        return Sound()

    def trim(self, operation: op.TrimLedger) -> Trimmed:
        """Write a checkpoint and drop the entries before an older one."""
        pool, keep = self._pool(operation.sku), operation.keep
        stocked = pool.opened + pool.restocked - pool.withdrawn + pool.received - pool.sent
        if sum(pool.stock) != pool.available or stocked != pool.available + pool.reserved + pool.confirmed:
            raise PoolDrifted(operation.sku)
        is_due = pool.sequence - max(pool.checkpoints, default=0) >= max(1, keep // 4)
        end = pool.sequence + is_due
        checkpoints = (*pool.checkpoints, *([end] if is_due else []))
        newest = end - keep
        if operation.relayed_only:
            relayed = pool.relayed or (0, 0)
            newest = min(newest, relayed[1] + 1) if relayed[0] == pool.epoch else 0
        start = max([pool.ledger_start, *(sequence for sequence in checkpoints if sequence <= newest)])
        deleted = [(one.epoch, one.sequence) for one in pool.ledger if one.epoch < pool.epoch or one.sequence < start]
        can_delete = pool.relayed is None or not deleted or deleted[-1] <= pool.relayed
        if pool.relayed is not None and not can_delete and not operation.relayed_only:
            raise not_relayed(pool.sku, pool.relayed, deleted[-1])
        if is_due:
            note = Checkpoint(
                pool.segment_count,
                pool.opened,
                pool.restocked,
                pool.withdrawn,
                pool.sent,
                pool.received,
                pool.reserved,
                pool.confirmed,
                pool.is_closed,
                pool.chain,
            ).note()
            parts = tuple((segment, units) for segment, units in enumerate(pool.stock) if units)
            self._append(pool, "checkpoint", pool_entry(pool.available, parts, note=note))
        pool.ledger_start = start
        pool.checkpoints = tuple(sequence for sequence in checkpoints if sequence >= start)
        if not can_delete:
            return Trimmed(start, pool.sequence, is_more_left=False)
        first = pool.ledger[0]
        up_to = min(start, first.sequence + DELETED_MAX)
        if first.sequence < up_to:
            last = (first.epoch if up_to < start else pool.epoch, up_to)
            pool.ledger = [entry for entry in pool.ledger if (entry.epoch, entry.sequence) >= last]
        return Trimmed(start, pool.sequence, is_more_left=up_to < start)

    # --- helpers ---

    def _append(self, pool: ModelPool, kind: Any, entry: LedgerEntry) -> int:  # noqa: ANN401  # an EntryKind
        return pool.append(kind, int(self._clock.now() * 1_000_000), [entry])

    def _tail(self, pool: ModelPool, after: int) -> list[LedgerEntry] | None:
        if pool.sequence - after > TAIL_MAX or pool.ledger_start > after + 1:
            return None
        return [entry for entry in pool.ledger if entry.sequence > after]


def _raw(pool: ModelPool, kind: str, record_id: str) -> str | None:
    if kind == "order":
        record = pool.orders.get(record_id)
        text = None if record is None else record_text(record)
        letter = "v" if record_id in pool.undone else "s" if record_id in pool.sold_before else None
        return f"{letter}{text[1:]}" if text and letter else text
    change = pool.changes.get(record_id)
    return None if change is None else " ".join(map(str, change))


def _write(pool: ModelPool, operation: op.MendRecord) -> None:
    kept: dict[str, Any] = pool.orders if operation.kind == "order" else pool.changes
    if operation.kind == "order":
        is_undone = (operation.wanted or "").startswith("v\t")
        (pool.undone.add if is_undone else pool.undone.discard)(operation.record_id)
    if operation.wanted is None:
        kept.pop(operation.record_id, None)
    elif operation.kind == "order":
        kept[operation.record_id] = parse_record(operation.record_id, operation.wanted)
    else:
        change, units, sequence = operation.wanted.split(" ")
        kept[operation.record_id] = (change, int(units), int(sequence))


def _units_in(pool: ModelPool, entry: LedgerEntry, operation: op.MendNumber) -> int:
    match operation.kind:
        case "total":
            return entry.quantity
        case "customer":
            return entry.quantity if entry.customer_id == operation.name else 0
        case "segment":
            segment = int(operation.name)
            return sum(units for own, units in entry.parts if own % pool.segment_count == segment)


def _number(pool: ModelPool, operation: op.MendNumber) -> int:
    match operation.kind:
        case "total":
            return len(pool.stock) if operation.name == "segment_count" else int(getattr(pool, _field(operation.name)))
        case "customer":
            return pool.bought.get(operation.name, 0)
        case "segment":
            return pool.stock[int(operation.name)]


def _add(pool: ModelPool, operation: op.MendNumber, difference: int) -> None:
    after = _number(pool, operation) + difference
    match operation.kind:
        case "total":
            field = _field(operation.name)
            setattr(pool, field, bool(after) if field == "is_closed" else after)
            pool.increases += field == "available" and difference > 0
        case "customer":
            pool.bought[operation.name] = after
            if after == 0:
                del pool.bought[operation.name]
        case "segment":
            pool.stock[int(operation.name)] = after


def _field(name: str) -> str:
    return "is_closed" if name == "closed" else name

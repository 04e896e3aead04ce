"""The audit of records, holds, notes of restocks, and customers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.ledger_lines import parse_record
from segmented.models.ids import plural
from segmented.plans import Plan, perform
from segmented.stock.fold import UNDECIDED, FoldedOrder, FoldedPart, LedgerFold, OrderLine
from segmented.stock.ledger import PAGE, Drift, LedgerTrimmed, extend_plan
from segmented.stock.plans import scanned_plan
from segmented.stock.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models import Inspected, OrderRecord, PoolState
    from segmented.models.pools import ScannedKey

OLDER_NAMES: Final = ("older reserved", "older confirmed")
"""If the orders of a trimmed part do not add up, the units of their customers are unknown."""
UNREADABLE: Final = "cannot be read"
NO_NUMBER_OF_UNITS: Final = "no whole number of units"


@dataclass(slots=True)
class Older:
    """Totals of orders that were decided, or reserved, before the checkpoint at which the ledger begins."""

    reserved: int = 0
    confirmed: int = 0
    bought: dict[str, int] = field(default_factory=dict)

    def add(self, state: str, quantity: int, customer_id: str | None) -> None:
        """Count one order."""
        if state == "reserved":
            self.reserved += quantity
        elif state == "confirmed":
            self.confirmed += quantity
        else:
            return
        if customer_id is not None:
            self.bought[customer_id] = self.bought.get(customer_id, 0) + quantity


@dataclass(slots=True)
class OrdersAudit:
    """The audit of orders, part by part; each part holds about 4,096 orders."""

    state: PoolState
    fold: LedgerFold
    strays: Spill
    """Ids that were found in the pool's keys, whether the ledger has them or not."""
    older: Spill
    """Records from before the checkpoint at which the ledger begins."""
    drift: list[Drift] = field(default_factory=list)
    later: dict[str, int] = field(default_factory=dict)
    """Orders that changed since, and the sequence number of that change."""
    judged: set[str] = field(default_factory=set)
    """Orders without a ledger entry that were judged."""
    known_count: int = 0
    """Orders in the ledger."""

    def add(self, found: Drift, line: OrderLine | None = None) -> None:
        """Note a drift, and watch its order."""
        self.drift.append(found)
        self.fold.watch(found.order_id or "", line)


def orders_drift(state: PoolState, fold: LedgerFold) -> Plan[list[Drift]]:
    """Compare every record and every hold with the fold at the state's sequence number.

    After a trim the fold continues, and learns each customer's units before its checkpoint.
    """
    audit = OrdersAudit(state, fold, Spill(state.order_count), Spill(state.order_count))
    yield from _scan_strays_plan(audit, "holds")
    if fold.first_sequence > 1:
        yield from _scan_strays_plan(audit, "orders")
    parts = range(audit.strays.part_count)
    for number in parts:
        yield from part_plan(audit, number)
    lost = sum(one.kind == "lost" for one in audit.drift)
    if fold.first_sequence == 1 and state.order_count + lost > audit.known_count:
        yield from _scan_strays_plan(audit, "orders")
        for number in parts:
            yield from _strays_plan(audit, number, fold.part(number))
    after = yield from perform(op.ReadPool(state.sku))
    if after.lost != state.lost:  # records that counted were dropped meanwhile
        raise LedgerTrimmed
    now = after.sequence
    for order_id, sequence in audit.later.items():
        if sequence > now:
            detail = f"its record is of change {sequence}, the ledger ends with {now}"
            audit.add(Drift("foreign write", order_id, detail))
    if fold.first_sequence > 1:
        yield from extend_plan(state.sku, fold, now)
        counted = _older(audit)
        for customer_id, units in counted.bought.items():
            fold.add_bought(customer_id, units)
        audit.drift += _older_drift(counted, fold, state.lost + fold.returned_lost)
    fold.spill = None
    return audit.drift


def _scan_strays_plan(audit: OrdersAudit, key: ScannedKey) -> Plan[None]:
    cursor = -1
    while cursor != 0:
        cursor, page = yield from perform(op.ScanKey(audit.state.sku, key, max(cursor, 0)))
        audit.strays.add("", dict(page))


def part_plan(audit: OrdersAudit, number: int) -> Plan[None]:
    """Judge the orders of one part: those in the ledger, then those that only the pool's keys have."""
    part = audit.fold.part(number)
    audit.known_count += len(part.orders)
    audit.fold.impossible += part.impossible
    audit.fold.headless |= part.headless
    for page in pages_of(list(part.orders)):
        for inspected in (yield from perform(op.InspectOrders(audit.state.sku, page))):
            line = part.orders[inspected.order_id]
            if inspected.raw == line.record and (line.kind in UNDECIDED) == (inspected.hold_until_ms is not None):
                continue
            expected = line.folded(inspected.order_id)
            found = _compare(inspected, expected, audit.fold, audit.later)
            if found is not None:
                audit.add(found, line)
    yield from _strays_plan(audit, number, part)


def _strays_plan(audit: OrdersAudit, number: int, part: FoldedPart) -> Plan[None]:
    found = dict.fromkeys(order_id for _, order_id in audit.strays.read(number))
    strays = [order_id for order_id in found if order_id not in part.orders and order_id not in audit.judged]
    if audit.fold.first_sequence == 1:
        audit.judged.update(strays)  # a second scan finds them again
    for page in pages_of(strays):
        for inspected in (yield from perform(op.InspectOrders(audit.state.sku, page))):
            one = _unexplained(inspected, audit)
            if one is not None:
                audit.add(one)


def _compare(inspected: Inspected, expected: FoldedOrder, fold: LedgerFold, later: dict[str, int]) -> Drift | None:
    order_id = inspected.order_id
    if inspected.raw is None:
        return Drift("lost", order_id, f"it has no record, the ledger says {expected}")
    record = parse_record(order_id, inspected.raw)
    if record is None:
        return Drift("foreign write", order_id, f"its record {UNREADABLE}, the ledger says {expected}")
    if record.sequence > fold.sequence:
        later[order_id] = record.sequence  # changed since
    elif _content(record) != _content(expected):
        found = f"its record says {said_of(record)} at {record.sequence}"
        what = "" if found.endswith(str(expected)) else f", the ledger says {expected}"
        return Drift("foreign write", order_id, found + (what or ", the ledger has another segment, customer or token"))
    return _hold_drift(record, inspected)


def _content(one: OrderRecord | FoldedOrder) -> tuple[object, ...]:
    segment = -1 if one.segment is None else one.segment
    return (one.state, one.quantity, one.sequence, segment, one.parts, one.customer_id, one.fencing_token)


def _hold_drift(record: OrderRecord, inspected: Inspected) -> Drift | None:
    if record.state == "reserved" and inspected.hold_until_ms is None:
        return Drift("leaked hold", record.order_id, "it is reserved but has no hold, so it would never expire")
    if record.state != "reserved" and inspected.hold_until_ms is not None:
        return Drift("leaked hold", record.order_id, f"it has a hold but is {record.state}")
    return None


def _unexplained(inspected: Inspected, audit: OrdersAudit) -> Drift | None:
    """Judge an order that the fold does not contain: it came later, before the ledger begins, or from outside."""
    order_id, fold = inspected.order_id, audit.fold
    if inspected.raw is None:
        stands = inspected.hold_until_ms is not None
        return Drift("leaked hold", order_id, "it has a hold but no record") if stands else None
    record = parse_record(order_id, inspected.raw)
    if record is None:
        return Drift("foreign write", order_id, f"its record {UNREADABLE}, and it has no ledger entry")
    if record.sequence > fold.sequence:
        audit.later[order_id] = record.sequence
    elif record.sequence >= fold.first_sequence:
        detail = f"its record says {said_of(record)}, but it has no ledger entry"
        return Drift("foreign write", order_id, detail)
    else:
        audit.older.add("", (f"{order_id}\t{record.state}\t{record.quantity}\t{record.customer_id or ''}",))
    return _hold_drift(record, inspected)


# --- what is older than a trimmed ledger ---


def _older(audit: OrdersAudit) -> Older:
    older = Older()
    for number in range(audit.older.part_count):
        inherited = audit.fold.part(number).inherited
        for _, line in audit.older.read(number):
            order_id, state, quantity, customer_id = line.split("\t")
            if order_id not in inherited:  # one that changed since is counted with its state at the checkpoint
                older.add(state, int(quantity), customer_id or None)
        for order in inherited.values():
            older.add(order.state, order.quantity, order.customer_id)
    return older


def _older_drift(older: Older, fold: LedgerFold, lost: int) -> Iterator[Drift]:
    if fold.base is None:
        return
    counts = ((older.reserved, fold.base.reserved), (older.confirmed + lost, fold.base.confirmed))
    for name, (found, expected) in zip(OLDER_NAMES, counts, strict=True):
        if found != expected:
            detail = (
                f"orders from before checkpoint {fold.first_sequence} add up to {found} {plural(found, 'unit')} "
                f"{name.split()[1]}, the checkpoint says {expected}"
            )
            yield Drift("foreign write", None, detail, "ledger", name)


# --- restocks and withdrawals ---


def changes_drift(state: PoolState, fold: LedgerFold) -> Plan[list[Drift]]:
    """Compare the notes of restocks and withdrawals. A note never changes, so later ones are ignored."""
    found = yield from scanned_plan(state.sku, "changes")
    drift: list[Drift] = []
    older = {"restocked": 0, "withdrawn": 0, "returned": 0}
    for change_id, expected in fold.changes.items():
        if change_id not in found and _change(expected)[2] <= state.sequence:
            drift.append(Drift("lost", None, f"{expected!r} of {change_id!r} has no note", "change", change_id))
    for change_id, note in found.items():
        if note == fold.changes.get(change_id):
            continue
        kind, units, sequence = _change(note)
        said = f"the ledger says {fold.changes.get(change_id, 'nothing')!r}"
        if kind not in older:
            detail = f"the note of {change_id!r} {UNREADABLE}, {said}"
            drift.append(Drift("foreign write", None, detail, "change", change_id))
            continue
        if sequence > state.sequence and change_id not in fold.changes:
            continue
        if sequence < fold.first_sequence and change_id not in fold.changes:
            older[kind] += units
        else:
            detail = f"the note of {change_id!r} says {note!r}, {said}"
            drift.append(Drift("foreign write", None, detail, "change", change_id))
    if fold.base is not None and (older["restocked"], older["withdrawn"]) != (fold.base.restocked, fold.base.withdrawn):
        detail = f"notes from before checkpoint {fold.first_sequence} do not add up to what it says"
        drift.append(Drift("foreign write", None, detail, "ledger", "older changes"))
    return drift


def _change(note: str) -> tuple[str, int, int]:
    kind, _, numbers = note.partition(" ")
    units, _, rest = numbers.partition(" ")
    sequence = rest.partition(" ")[0] if kind == "returned" else rest  # then the order id
    if not (units.isdecimal() and sequence.isdecimal()):
        return "", 0, 0
    return kind, int(units), int(sequence)


# --- customers ---


def customers_drift(state: PoolState, fold: LedgerFold) -> Plan[list[Drift]]:
    """Compare each customer's units; the fold continues to the sequence number at which each page was read.

    In a pool that forgets, customers keep the units of forgotten orders: together at most the `lost` ones.
    """
    drift: list[Drift] = []
    forgotten = state.lost + fold.returned_lost if state.forgotten else 0
    further = 0
    named = dict.fromkeys((*fold.bought, *(yield from scanned_plan(state.sku, "customers"))))
    for page in pages_of(list(named)):
        sequence, units = yield from perform(op.ReadCustomers(state.sku, page))
        yield from extend_plan(state.sku, fold, sequence)
        for customer_id, found in zip(page, units, strict=True):
            expected = fold.bought.get(customer_id, 0)
            if forgotten and found is not None and found > expected:
                further += found - expected
            elif found != expected:
                has = NO_NUMBER_OF_UNITS if found is None else f"{found} {plural(found, 'unit')}"
                detail = f"customer {customer_id} has {has}, the ledger says {expected}"
                drift.append(Drift("foreign write", None, detail, "customer", customer_id))
    if further > forgotten:
        more = f"{further} {plural(further, 'unit')}"
        detail = f"customers have {more} beyond their orders, but only {forgotten} of forgotten orders"
        drift.append(Drift("foreign write", None, detail, "ledger", "customers"))
    return drift


# --- pieces ---


def said_of(record: OrderRecord) -> str:
    """Return an order's state and units as text."""
    return f"{record.state} with {record.quantity} {plural(record.quantity, 'unit')}"


def pages_of(items: list[str], size: int = PAGE) -> Iterator[tuple[str, ...]]:
    """Split a list into pages."""
    return (tuple(items[first : first + size]) for first in range(0, len(items), size))

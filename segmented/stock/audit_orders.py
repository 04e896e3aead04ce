"""The audit of records, holds, notes of restocks, and customers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from segmented import protocol as op
from segmented.ledger_lines import parse_record
from segmented.plans import Plan, perform
from segmented.stock.ledger import PAGE, Drift, extend_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from segmented.models import Inspected, OrderRecord, PoolState
    from segmented.models.pools import ScannedKey
    from segmented.stock.fold import FoldedOrder, LedgerFold

ItemT = TypeVar("ItemT")
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


def orders_drift(state: PoolState, fold: LedgerFold) -> Plan[list[Drift]]:
    """Compare every record and every hold with the fold at the state's sequence number.

    After a trim the fold continues, and learns each customer's units before its checkpoint.
    """
    drift: list[Drift] = []
    known = set(fold.orders)
    later: dict[str, int] = {}
    for page in _pages(list(fold.orders)):
        for inspected in (yield from perform(op.InspectOrders(state.sku, page))):
            found = _compare(inspected, fold.orders[inspected.order_id], fold, later)
            drift += [found] if found else []
    older: dict[str, OrderRecord] = {}
    lost = sum(one.kind == "lost" for one in drift)
    keys: list[ScannedKey] = ["holds"]
    if fold.first_sequence > 1 or state.order_count + lost > len(known):
        keys.append("orders")
    for key in keys:
        strays = yield from _scan(state.sku, key, known)
        for page in _pages(strays):
            known |= set(page)
            for inspected in (yield from perform(op.InspectOrders(state.sku, page))):
                found = _unexplained(inspected, fold, later, older)
                drift += [found] if found else []
    now = (yield from perform(op.ReadPool(state.sku))).sequence
    drift += [
        Drift("foreign write", order_id, f"its record is of change {sequence}, the ledger ends with {now}")
        for order_id, sequence in later.items()
        if sequence > now
    ]
    if fold.first_sequence == 1:
        return drift
    yield from extend_plan(state.sku, fold, now)
    counted = _older(older, fold)
    for customer_id, units in counted.bought.items():
        fold.add_bought(customer_id, units)
    return [*drift, *_older_drift(counted, fold, state.lost)]


def _compare(inspected: Inspected, expected: FoldedOrder, fold: LedgerFold, later: dict[str, int]) -> Drift | None:
    order_id = inspected.order_id
    if inspected.raw is None:
        return Drift("lost", order_id, f"it has no record, the ledger says {expected}")
    record = parse_record(order_id, inspected.raw)
    if record is None:
        return Drift("foreign write", order_id, f"its record {UNREADABLE}, the ledger says {expected}")
    if record.sequence > fold.sequence:
        later[order_id] = record.sequence  # changed since
    elif _content(record) != (
        expected.state,
        expected.quantity,
        expected.sequence,
        -1 if expected.segment is None else expected.segment,
        expected.parts,
        expected.customer_id,
        expected.fencing_token,
    ):
        found = f"its record says {record.state} with {record.quantity} units at {record.sequence}"
        what = "" if found.endswith(str(expected)) else f", the ledger says {expected}"
        return Drift("foreign write", order_id, found + (what or ", the ledger has another segment, customer or token"))
    return _hold_drift(record, inspected)


def _content(record: OrderRecord) -> tuple[object, ...]:
    head = (record.state, record.quantity, record.sequence, record.segment)
    return (*head, record.parts, record.customer_id, record.fencing_token)


def _hold_drift(record: OrderRecord, inspected: Inspected) -> Drift | None:
    if record.state == "reserved" and inspected.hold_until_ms is None:
        return Drift("leaked hold", record.order_id, "it is reserved but has no hold, so it would never expire")
    if record.state != "reserved" and inspected.hold_until_ms is not None:
        return Drift("leaked hold", record.order_id, f"it has a hold but is {record.state}")
    return None


def _unexplained(
    inspected: Inspected, fold: LedgerFold, later: dict[str, int], older: dict[str, OrderRecord]
) -> Drift | None:
    """Judge an order that the fold does not contain: it came later, before the ledger begins, or from outside."""
    order_id = inspected.order_id
    if inspected.raw is None:
        stands = inspected.hold_until_ms is not None
        return Drift("leaked hold", order_id, "it has a hold but no record") if stands else None
    record = parse_record(order_id, inspected.raw)
    if record is None:
        return Drift("foreign write", order_id, f"its record {UNREADABLE}, and it has no ledger entry")
    if record.sequence > fold.sequence:
        later[order_id] = record.sequence
    elif record.sequence >= fold.first_sequence:
        detail = f"its record says {record.state} with {record.quantity} units, but it has no ledger entry"
        return Drift("foreign write", order_id, detail)
    else:
        older[order_id] = record
    return _hold_drift(record, inspected)


# --- what is older than a trimmed ledger ---


def _older(records: dict[str, OrderRecord], fold: LedgerFold) -> Older:
    older = Older()
    for order_id, record in records.items():
        if order_id not in fold.inherited:  # one that changed since is counted with its state at the checkpoint
            older.add(record.state, record.quantity, record.customer_id)
    for order in fold.inherited.values():
        older.add("reserved", order.quantity, order.customer_id)
    return older


def _older_drift(older: Older, fold: LedgerFold, lost: int) -> Iterator[Drift]:
    if fold.base is None:
        return
    counts = ((older.reserved, fold.base.reserved), (older.confirmed + lost, fold.base.confirmed))
    for name, (found, expected) in zip(OLDER_NAMES, counts, strict=True):
        if found != expected:
            detail = (
                f"orders from before checkpoint {fold.first_sequence} add up to {found} units {name.split()[1]}, "
                f"the checkpoint says {expected}"
            )
            yield Drift("foreign write", None, detail, "ledger", name)


# --- restocks and withdrawals ---


def changes_drift(state: PoolState, fold: LedgerFold) -> Plan[list[Drift]]:
    """Compare the notes of restocks and withdrawals. A note never changes, so later ones are ignored."""
    found = yield from changes_plan(state.sku)
    drift: list[Drift] = []
    older = {"restocked": 0, "withdrawn": 0}
    for change_id, expected in fold.changes.items():
        if change_id not in found and int(expected.rpartition(" ")[2]) <= state.sequence:
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
    if fold.base is not None and (older["restocked"], older["withdrawn"]) != (
        fold.base.restocked,
        fold.base.withdrawn,
    ):
        detail = f"notes from before checkpoint {fold.first_sequence} do not add up to what it says"
        drift.append(Drift("foreign write", None, detail, "ledger", "older changes"))
    return drift


def changes_plan(sku: str) -> Plan[dict[str, str]]:
    """Read the notes of all restocks and withdrawals, by their ids."""
    found: dict[str, str] = {}
    cursor = -1
    while cursor != 0:
        cursor, page = yield from perform(op.ScanChanges(sku, max(cursor, 0)))
        found |= page
    return found


def _change(note: str) -> tuple[str, int, int]:
    kind, _, numbers = note.partition(" ")
    units, _, sequence = numbers.partition(" ")
    if not (units.isdecimal() and sequence.isdecimal()):
        return "", 0, 0
    return kind, int(units), int(sequence)


# --- customers ---


def customers_drift(state: PoolState, fold: LedgerFold) -> Plan[list[Drift]]:
    """Compare each customer's units; the fold continues to the sequence number at which each page was read."""
    drift: list[Drift] = []
    known = list(fold.bought)
    strays = yield from _scan(state.sku, "customers", known)
    for page in _pages([*known, *strays]):
        sequence, units = yield from perform(op.ReadCustomers(state.sku, page))
        yield from extend_plan(state.sku, fold, sequence)
        for customer_id, found in zip(page, units, strict=True):
            expected = fold.bought.get(customer_id, 0)
            if found != expected:
                has = NO_NUMBER_OF_UNITS if found is None else f"{found} units"
                detail = f"customer {customer_id} has {has}, the ledger says {expected}"
                drift.append(Drift("foreign write", None, detail, "customer", customer_id))
    return drift


# --- pieces ---


def _pages(items: list[ItemT]) -> Iterator[tuple[ItemT, ...]]:
    return (tuple(items[first : first + PAGE]) for first in range(0, len(items), PAGE))


def _scan(sku: str, key: ScannedKey, known: Iterable[str]) -> Plan[list[str]]:
    """Return the names that are in a key but not in `known`."""
    known = set(known)
    found: dict[str, None] = {}
    cursor = -1
    while cursor != 0:
        cursor, ids = yield from perform(op.ScanIds(sku, key, max(cursor, 0)))
        found |= dict.fromkeys(one for one in ids if one not in known)
    return list(found)

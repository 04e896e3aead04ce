"""The repair: restore what an audit reported to the ledger's values, one step each, by adding and never by overwriting.

The ledger is the truth. Errors in the ledger itself cannot be repaired from it; they are reported and left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from segmented import protocol as op
from segmented.ledger_lines import parse_record, record_text
from segmented.models import Differing, Mended, OrderRecord, Outrun, PoolState, Sound
from segmented.models.ids import plural
from segmented.plans import Plan, perform
from segmented.stock.audit import LEDGER_END, all_drift_plan, audit_plan, totals_of, unreadable_totals
from segmented.stock.audit_orders import UNREADABLE
from segmented.stock.ledger import AuditReport, Drift, DriftKind, LedgerTrimmed, extend_plan
from segmented.stock.plans import scanned_plan
from segmented.stock.settings import checked_flag

if TYPE_CHECKING:
    from segmented.models.pools import NumberKind
    from segmented.stock.fold import FoldedOrder, LedgerFold

TRIES_MAX: Final = 100
"""How often one repair starts again because the sale outran it."""
GONE: Final = "there is nothing left to mend"
UNSOUND: Final = "cannot be mended: the ledger itself is damaged, so it cannot say what is right"
TOLD: Final = "cannot be mended: it is in the ledger, which is never rewritten"
OLD: Final = "cannot be mended: changes before the trim are known only as sums"
NO_NUMBER: Final = (
    "cannot be mended: no change can be made while a number of the pool cannot be read; write what is right by hand"
)
NOT_OURS: Final = "cannot be mended: it does not belong to the pool; remove it by hand"
BETWEEN: Final = "cannot be mended: what a shard keeps of its transfers is written by transfers alone"
STUCK: Final = "cannot be mended: the ledger takes no entry before its end is mended"
OWN: Final = "cannot be mended: a later entry looks like the pool's own, and does not follow its last change"
CARTS: Final = "cannot be mended from the ledger, which does not record carts"
FOLLOWS: Final = "it follows from the others"

RepairKind = Literal["oversold", "refused wrongly"]


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair of one drift: done, or only described in a dry run."""

    kind: DriftKind | RepairKind
    order_id: str | None
    detail: str
    is_done: bool
    """Whether this call repaired it."""

    def __str__(self) -> str:
        place = "" if self.order_id is None else f"order {self.order_id}: "
        return f"{'mended' if self.is_done else 'left'}: {self.kind}: {place}{self.detail}"


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair: an entry for each drift in its report, and for each error that no repair can correct."""

    repairs: tuple[Repair, ...]
    after: AuditReport
    """The audit after the repair; without `yes`, of the unchanged pool."""

    @property
    def is_clean(self) -> bool:
        """Return whether nothing is left to repair."""
        return self.after.is_clean

    @property
    def done_count(self) -> int:
        """Number of drifts repaired by this call."""
        return sum(repair.is_done for repair in self.repairs)


def repair_plan(report: AuditReport, hold_ms: int, *, yes: bool) -> Plan[RepairReport]:
    """Repair what `report` names and a new audit still finds; without `yes`, only report what would be done.

    Each repair is one step that first checks whether the drift still exists, and adds an entry `repaired` to the
    ledger. A second run changes nothing. Drift that the report does not name is left alone. A restored hold lasts
    `hold_ms` from now.
    """
    checked_flag(yes, "yes")
    sku = report.state.sku
    state, fold, drift = yield from all_drift_plan(sku)
    standing = {one.place: one for one in drift}
    repairs: list[Repair] = []
    wanted = list(report.drift)
    end = next((one for one in report.drift if _is_end(one) and one.place in standing), None)
    if yes and end is not None and not unreadable_totals(state):
        repairs.append((yield from _mend_end_plan(sku, standing[end.place])))
        wanted.remove(end)
        before = state.sequence
        state, fold, drift = yield from all_drift_plan(sku)
        if state.sequence > before + 1:  # the changes that it counts now are the ones whose script was refused
            wanted += [one for one in drift if one.place not in {each.place for each in wanted}]
        standing = {one.place: one for one in drift}
    is_stuck = bool(state.ledger_end)
    sums: list[Drift] = []
    for named in _in_order(wanted):
        one = named if named.about == "cart" else standing.get(named.place)
        if one is None:
            repairs.append(_told(named, GONE))
        elif why := _why_not(one, state, fold):
            repairs.append(_told(one, why))
        elif not yes:
            repairs.append(_told(one, _what_would_be_done(one, fold)))
        elif is_stuck:
            repairs.append(_told(one, STUCK))
        elif one.about == "sum":
            sums.append(one)
        else:
            repairs.append((yield from _mend_plan(sku, fold, one, hold_ms)))
    after, last_fold = yield from audit_plan(sku)
    still = {one.place for one in after.drift}
    repairs += [Repair(one.kind, None, f"{one.detail}: {FOLLOWS}", is_done=one.place not in still) for one in sums]
    return RepairReport((*repairs, *_untold(after, last_fold)), after)


def _is_end(drift: Drift) -> bool:
    return (drift.about, drift.name) == ("ledger", LEDGER_END)


def _told(drift: Drift, what: str) -> Repair:
    return Repair(drift.kind, drift.order_id, f"{drift.detail}: {what}", is_done=False)


def _in_order(drift: list[Drift]) -> list[Drift]:
    """Sort the ledger's end first, since it blocks all other repairs, then totals: segments depend on their number."""
    return sorted(drift, key=lambda one: (not _is_end(one), one.about != "total"))


def _untold(after: AuditReport, fold: LedgerFold) -> list[Repair]:
    """Return the errors that no repair can correct, because buyers already got their answers."""
    told = [
        Repair("refused wrongly", order_id, "its refusal stands where enough units were free", is_done=False)
        for order_id in fold.refused_wrongly
    ]
    if after.oversold:
        more = f"{after.oversold} more {plural(after.oversold, 'unit', 'is')}"
        detail = f"{more} confirmed and reserved than were stocked: restock, or cancel orders"
        told.append(Repair("oversold", None, detail, is_done=False))
    return told


def _why_not(drift: Drift, state: PoolState, fold: LedgerFold) -> str | None:
    if drift.about == "cart":
        return CARTS
    if unreadable_totals(state):
        return NO_NUMBER
    if drift.about == "segment" and not (drift.name.isdecimal() and int(drift.name) < fold.segment_count):
        return NOT_OURS
    if _is_end(drift):
        return None
    if drift.about == "transfer":
        return BETWEEN
    if drift.about == "ledger":
        return OLD if drift.name.startswith("older ") else TOLD
    if not fold.is_sound:
        return UNSOUND
    is_unknown = drift.order_id not in fold.orders and drift.name not in fold.changes
    if fold.first_sequence > 1 and UNREADABLE in drift.detail and is_unknown:
        return OLD
    return None


def _what_would_be_done(drift: Drift, fold: LedgerFold) -> str:
    match drift.about:
        case "order" if drift.kind == "leaked hold":
            return "its hold would be corrected"
        case "order":
            return f"its record would be {'written again' if drift.order_id in fold.orders else 'removed'}"
        case "change":
            return f"the note would be {'written again' if drift.name in fold.changes else 'removed'}"
        case "sum":
            return FOLLOWS
        case "ledger":
            return "later entries would be counted if they are the pool's own, otherwise removed"
        case _:
            return "the difference would be added"


def _mend_plan(sku: str, fold: LedgerFold, drift: Drift, hold_ms: int) -> Plan[Repair]:
    """Repair one drift; if the sale outruns it, extend the fold and try again, a bounded number of times."""
    answer: Mended | Sound | Differing | Outrun = Outrun()
    for _ in range(TRIES_MAX):
        try:
            now = yield from perform(op.ReadPool(sku))
            yield from extend_plan(sku, fold, now.sequence)
        except LedgerTrimmed:
            break
        if drift.about == "order":
            answer = yield from _mend_order_plan(sku, fold, drift.order_id or "", hold_ms)
        elif drift.about == "change":
            answer = yield from _mend_change_plan(sku, fold, drift.name)
        else:
            answer = yield from _mend_number_plan(sku, fold, drift)
        if not isinstance(answer, Outrun):
            break
    return _outcome(drift, answer)


def _outcome(drift: Drift, answer: Mended | Sound | Differing | Outrun) -> Repair:
    if isinstance(answer, Mended):
        return Repair(drift.kind, drift.order_id, f"{drift.detail}: mended by entry {answer.sequence}", is_done=True)
    if isinstance(answer, Sound):
        return _told(drift, GONE)
    changed = isinstance(answer, Differing)
    return _told(drift, "it changed again since it was audited" if changed else "the sale was too fast to mend it")


def _mend_end_plan(sku: str, drift: Drift) -> Plan[Repair]:
    """Remove foreign entries after the ledger's end; each step removes or copies a bounded number of entries."""
    answer: Mended | Sound | Differing | Outrun = Outrun()
    for _ in range(TRIES_MAX):
        answer = yield from perform(op.MendLedger(sku))
        if not isinstance(answer, Outrun):
            break
    if isinstance(answer, Differing):
        return _told(drift, OWN)
    return _outcome(drift, answer)


def _mend_number_plan(sku: str, fold: LedgerFold, drift: Drift) -> Plan[Mended | Sound | Differing | Outrun]:
    kind: NumberKind
    match drift.about:
        case "segment":
            if int(drift.name) >= fold.segment_count:
                return Sound()  # a resize removed it
            kind, expected = "segment", fold.stock[int(drift.name)]
        case "customer":
            kind, expected = "customer", fold.bought.get(drift.name, 0)
        case _:
            kind, expected = "total", totals_of(fold)[drift.name]
    return (yield from perform(op.MendNumber(sku, kind, drift.name, fold.sequence, expected)))


def _mend_change_plan(sku: str, fold: LedgerFold, change_id: str) -> Plan[Mended | Sound | Differing | Outrun]:
    seen = (yield from scanned_plan(sku, "changes")).get(change_id)
    wanted = fold.changes.get(change_id)
    return (yield from perform(op.MendRecord(sku, "change", change_id, fold.sequence, seen, wanted, 0)))


def _mend_order_plan(
    sku: str, fold: LedgerFold, order_id: str, hold_ms: int
) -> Plan[Mended | Sound | Differing | Outrun]:
    (inspected,) = yield from perform(op.InspectOrders(sku, (order_id,)))
    seen = inspected.raw
    record = None if seen is None else parse_record(order_id, seen)
    expected = fold.orders.get(order_id)
    wanted: str | None = None
    if expected is not None:
        wanted = record_text(_record(order_id, expected, record))
    elif record is not None and record.sequence < fold.first_sequence:
        wanted = seen  # older than the ledger: only its hold can be judged
    return (yield from perform(op.MendRecord(sku, "order", order_id, fold.sequence, seen, wanted, hold_ms)))


def _record(order_id: str, expected: FoldedOrder, found: OrderRecord | None) -> OrderRecord:
    """Build the record that the ledger implies; what the ledger lacks comes from `found`, if that matches."""
    known = found or OrderRecord(
        order_id=order_id,
        state=expected.state,
        quantity=expected.quantity,
        segment=-1,
        parts=(),
        holder_id=None,
        fencing_token=None,
        hold_until_ms=None,
        customer_id=None,
        sequence=0,
        asked=expected.quantity,
    )
    is_same_grant = known.fencing_token == expected.fencing_token is not None
    return replace(
        known,
        state=expected.state,
        quantity=expected.quantity,
        segment=-1 if expected.segment is None else expected.segment,
        parts=expected.parts,
        holder_id=known.holder_id if is_same_grant else None,
        fencing_token=expected.fencing_token,
        customer_id=expected.customer_id,
        sequence=expected.sequence,
        asked=max(known.asked, expected.quantity) if known.asked > known.quantity else expected.quantity,
    )

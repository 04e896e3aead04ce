"""The audit: recompute a pool's numbers from its ledger, up to one sequence number, and compare every key with them.

It runs while the pool sells, without false alarms. Totals, units and sequence number are read in one step. A record is
read together with its hold. Customers are read together with the sequence number up to which the fold then continues. A
record that changed later is left for the next audit.

Carts: a cart's record and its orders are in different pools, so no single read sees both. The audit reports only
contradictions that hold in whatever order they were read, because each rule rests on facts that never change back:

- A record is never removed, and its final states are final. It is opened before the first line is reserved.
- A cart becomes reserved when every line has its order, and confirmed when every order is pinned. An order's record is
  never removed, and only the end of the order removes its pin.
- A line is confirmed only after its cart, and cancelled only after its cart is void.
- A cart is finished after its decision is carried out in every line's pool. A line that comes later is not pinned.

So a record that was read first determines the state of its lines, now or later, and a line that was read first
determines the state that its record must have by now. Everything else may be a cart in progress, which is not judged,
however long it takes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import PoolArchived, PoolMissing, SegmentedError, StoreError, StoreRefused, WrongKind
from segmented.ledger_lines import parse_record
from segmented.models import PINNED_UNTIL_MS, Inspected, InspectedCart, OrderRecord, PoolState
from segmented.models.ids import plural
from segmented.plans import Plan, perform
from segmented.plans.effects import Batch
from segmented.protocol.pool import moment
from segmented.stock.audit_orders import (
    NO_NUMBER_OF_UNITS,
    OLDER_NAMES,
    changes_drift,
    customers_drift,
    orders_drift,
    pages_of,
)
from segmented.stock.fold import LedgerFold
from segmented.stock.ledger import PAGE, AuditReport, Drift, DriftKind, LedgerTrimmed, LedgerUnreadable, begin_plan
from segmented.stock.plans import scanned_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


__all__ = ["AuditReport", "Drift", "DriftKind", "all_drift_plan", "audit_plan"]

NAMED_MAX: Final = 1_000
"""Maximum number of drifts named in a report; `drift_count` counts all."""
TRIES_MAX: Final = 10
TOTALS: Final = (
    *("opened", "restocked", "withdrawn", "sent", "received", "segment_count"),
    *("available", "reserved", "confirmed"),
)
LEDGER_END: Final = "end"
"""Name of the drift that stops the pool: a foreign entry after the pool's last change."""
SEGMENT: Final = "segment "
TRANSFER: Final = "transfer "


def audit_plan(sku: str) -> Plan[tuple[AuditReport, LedgerFold]]:
    """Audit the pool `sku`; returns the report and the fold on which it is based."""
    state, fold, drift = yield from all_drift_plan(sku)
    carts = yield from carts_plan(state, fold)
    drift += carts.drift
    report = AuditReport(
        state=state,
        drift=tuple(drift[:NAMED_MAX]),
        drift_count=len(drift),
        refused_wrongly=len(fold.refused_wrongly),
        oversold=0 if unreadable_totals(state) else max(0, state.confirmed + state.reserved - state.stocked),
        by_kind=dict(Counter(one.kind for one in drift)),
        first_sequence=fold.first_sequence,
        unread=tuple(f"carts with pool {other!r}: {error}" for other, error in carts.silent.items()),
    )
    return report, fold


def all_drift_plan(sku: str) -> Plan[tuple[PoolState, LedgerFold, list[Drift]]]:
    """Find all drift. The returned fold may include changes after the state's sequence number."""
    for _ in range(TRIES_MAX):
        try:
            state, fold = yield from begin_plan(sku)
            drift = [*end_drift(state), *totals_drift(state, fold), *ledger_drift(fold)]
            found = yield from orders_drift(state, fold)
            drift += [*impossible_drift(fold), *found]
            drift += yield from changes_drift(state, fold)
            if state.limit_per_customer is not None and not any(one.name in OLDER_NAMES for one in drift):
                drift += yield from customers_drift(state, fold)
        except LedgerTrimmed:
            continue
        except LedgerUnreadable as without:
            return without.state, LedgerFold(), list(_unreadable_drift(without.state, {}, []))
        return state, fold, drift
    raise StoreRefused(f"the ledger of {sku!r} was trimmed {TRIES_MAX} times while it was audited")


def totals_of(side: LedgerFold | PoolState) -> dict[str, int]:
    """Return each total according to the ledger, or as the pool has it."""
    return {name: getattr(side, name) for name in TOTALS} | {"closed": int(side.is_closed)}


def unreadable_totals(state: PoolState) -> list[str]:
    """Return the names of non-numeric values that stop the pool; unreadable units of a segment do not."""
    return [name for name in state.unreadable if not name.startswith((SEGMENT, TRANSFER))]


def _unreadable_drift(state: PoolState, totals: Mapping[str, int], stock: Sequence[int]) -> Iterator[Drift]:
    """Report each non-numeric value, with the ledger's value where there is one."""
    for name in state.unreadable:
        segment = name.removeprefix(SEGMENT)
        if name.startswith(TRANSFER):
            detail = f"{name} is not a number and units"
            yield Drift("foreign write", None, detail, "transfer", name.removeprefix(TRANSFER))
        elif segment == name:
            said = f", the ledger says {totals[name]}" if name in totals else ""
            what = "is not the text of a profile" if name == "profile" else f"is not a whole number{said}"
            yield Drift("foreign write", None, f"{name} {what}", "total", name)
        elif segment.isdecimal():
            said = f", the ledger says {stock[int(segment)]}" if int(segment) < len(stock) else ""
            yield Drift("foreign write", None, f"segment {segment} has {NO_NUMBER_OF_UNITS}{said}", "segment", segment)
        else:
            detail = f"there are units of a segment {segment!r}, which is not a whole number"
            yield Drift("foreign write", None, detail, "segment", segment)


def end_drift(state: PoolState) -> list[Drift]:
    if not state.ledger_end:
        return []
    detail = f"the ledger ends with {state.ledger_end}, beyond change {state.sequence}: the pool cannot go on"
    return [Drift("foreign write", None, detail, "ledger", LEDGER_END)]


def totals_drift(state: PoolState, fold: LedgerFold) -> list[Drift]:
    found, totals = totals_of(state), totals_of(fold)
    drift = [
        Drift("foreign write", None, f"{name} is {found[name]}, the ledger says {expected}", "total", name)
        for name, expected in totals.items()
        if found[name] != expected and name not in state.unreadable
    ]
    unreadable = sorted(_unreadable_drift(state, totals, fold.stock), key=lambda one: one.about == "transfer")
    drift += [one for one in unreadable if one.about != "segment"]
    drift += _transfers_drift(state, fold)
    if sum(state.stock) != fold.available:
        detail = f"the sum over segments is {sum(state.stock)}, the ledger says {fold.available}"
        drift.append(Drift("foreign write", None, detail, "sum", "stock"))
    for segment, (units, expected) in enumerate(zip(state.stock, fold.stock, strict=False)):
        if units != expected and f"{SEGMENT}{segment}" not in state.unreadable:
            detail = f"segment {segment} has {units} {plural(units, 'unit')}, the ledger says {expected}"
            drift.append(Drift("foreign write", None, detail, "segment", str(segment)))
    drift += [one for one in unreadable if one.about == "segment"]
    negative = min(state.available, state.reserved, state.confirmed, *state.stock) < 0
    if negative or state.stocked != state.available + state.reserved + state.confirmed:
        terms = f"{state.available} available + {state.reserved} reserved + {state.confirmed} confirmed"
        drift.append(Drift("foreign write", None, f"stocked {state.stocked}, but {terms}", "sum", "stocked"))
    return drift


def _transfers_drift(state: PoolState, fold: LedgerFold) -> Iterator[Drift]:
    """Compare a shard's notes of its transfers; of trimmed transfers only the totals are known."""
    kept: dict[tuple[str, int], tuple[int, int]] = {
        (one.kind, one.other): (one.number, one.units) for one in state.transfers
    }
    for place in sorted({*fold.transfers, *(place for place in kept if place[0] != "away")}):
        found, expected = kept.get(place), fold.transfers.get(place)
        if found == expected or (fold.first_sequence > 1 and found and (not expected or found[0] == expected[0])):
            continue
        name = f"{place[0]}:{place[1]}"
        said = f"{found[0]} with {found[1]} {plural(found[1], 'unit')} in all" if found else "missing"
        ledger = f"{expected[0]} with {expected[1]}" if expected else "nothing"
        yield Drift("foreign write", None, f"transfer {name} is {said}, the ledger says {ledger}", "transfer", name)
    for (kind, other), found in kept.items():
        if kind == "away" and found != fold.last_sent.get(other, _unknown(kept.get(("sent", other)), found, fold)):
            name, (number, units) = f"away:{other}", found
            said = f"{number} with {units} {plural(units, 'unit')}"
            detail = f"transfer {name} is {said}, which is not the last that was sent there"
            yield Drift("foreign write", None, detail, "transfer", name)
    for kind, total in (("sent", fold.sent), ("received", fold.received)):
        found_in_all = sum(units for (one, _), (_, units) in kept.items() if one == kind)
        if found_in_all != total and fold.first_sequence > 1:
            in_all = f"{found_in_all} {plural(found_in_all, 'unit')}"
            detail = f"transfers {kind} add up to {in_all}, the ledger says {total}"
            yield Drift("foreign write", None, detail, "transfer", kind)


def _unknown(sent: tuple[int, int] | None, away: tuple[int, int], fold: LedgerFold) -> tuple[int, int] | None:
    """Return what the shard noted if a trim removed its ledger entry, of which only the number is known."""
    return (sent[0], away[1]) if sent and fold.first_sequence > 1 else None


def ledger_drift(fold: LedgerFold) -> list[Drift]:
    def foreign(sequence: int, what: str, order_id: str | None = None) -> Drift:
        return Drift("foreign write", order_id, f"entry {sequence} {what}", "ledger", str(sequence))

    drift = [foreign(sequence, "is missing") for sequence in fold.gaps]
    for sequence, order_ids in fold.broken:
        what = "is not what was written, or follows another"
        drift += [foreign(sequence, what, order_id) for order_id in order_ids] or [foreign(sequence, what)]
    drift += [foreign(sequence, f"is a checkpoint that contradicts: {what}") for sequence, what in fold.contradicted]
    return drift


def impossible_drift(fold: LedgerFold) -> Iterator[Drift]:
    for order_id in dict.fromkeys(fold.impossible):
        if order_id in fold.headless:
            detail = "the ledger lacks its reservation, but has later entries"
            yield Drift("foreign write", order_id, detail, "ledger", order_id)
        else:
            yield Drift("duplicate", order_id, "its entries contradict each other", "ledger", order_id)


CARTS_PAGE: Final = 200
"""Number of carts judged together; each has up to 100 lines."""
VOID: Final = frozenset({"cancelled", "expired", "refused"})
UNDER_WAY: Final = frozenset({"open", "reserved"})


@dataclass(slots=True)
class CartsAudit:
    """The audit's findings about a pool's carts."""

    sku: str
    is_gated: bool = False
    drift: list[Drift] = field(default_factory=list)
    silent: dict[str, SegmentedError] = field(default_factory=dict)
    """Other pools that did not answer."""

    def add(self, kind: DriftKind, cart_id: str, detail: str, *, order_id: str | None = None) -> None:
        """Add one contradiction to the findings."""
        self.drift.append(Drift(kind, order_id, detail, "cart", cart_id))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a cart, as found in its pool."""

    sku: str
    cart: InspectedCart
    order_id: str
    record: OrderRecord | None
    hold_until_ms: int | None

    @property
    def state(self) -> str | None:
        """The state of the line's order; None without one."""
        return self.record.state if self.record is not None else None

    @property
    def is_pinned(self) -> bool:
        """Return whether the order stays on hold until an explicit confirm or cancel."""
        return self.state == "reserved" and (self.hold_until_ms or 0) >= PINNED_UNTIL_MS


def carts_plan(state: PoolState, fold: LedgerFold) -> Plan[CartsAudit]:
    """Judge the carts that a pool keeps, with their lines in all pools, and the orders in it that carts have pinned."""
    audit = CartsAudit(state.sku, is_gated=state.gated)
    try:
        yield from _kept_plan(audit, fold)
    except WrongKind:
        audit.add("foreign write", "", "something else is in the place of the pool's carts, so none can be read")
    yield from _pinned_plan(audit)
    return audit


# --- carts at their home ---


def _kept_plan(audit: CartsAudit, fold: LedgerFold) -> Plan[None]:
    found = (yield from scanned_plan(audit.sku, "carts")) | (yield from scanned_plan(audit.sku, "unfinished"))
    for page in pages_of(list(found), CARTS_PAGE):
        carts = yield from perform(op.InspectCarts(audit.sku, page))
        for one in carts:
            _judge_record(audit, one)
        lines = yield from _lines_plan(audit, carts)
        unjudged = [line for line in lines if not _judge_line(audit, line, fold)]
        suspects = [line for line in unjudged if _is_suspect(line) and not audit.is_gated]
        yield from _judge_again_plan(audit, suspects)


def _judge_record(audit: CartsAudit, one: InspectedCart) -> None:
    cart_id = one.cart_id
    if one.is_kept and one.cart is None:
        audit.add("foreign write", cart_id, f"the record of cart {cart_id!r} cannot be read: put it right by hand")
    elif one.is_unfinished and not one.is_kept:
        detail = f"cart {cart_id!r} is to be finished, but has no record: remove it from `unfinished`"
        audit.add("lost", cart_id, detail)
    elif one.state in UNDER_WAY and not one.is_unfinished:
        detail = f"cart {cart_id!r} is {one.state}, but no sweep knows of it: confirm or cancel the cart"
        audit.add("lost", cart_id, detail)


def _lines_plan(audit: CartsAudit, carts: Iterable[InspectedCart]) -> Plan[list[Line]]:
    """Read the lines of carts in all their pools, except pools that do not answer and orders that cannot be read."""
    wanted: defaultdict[str, dict[str, InspectedCart]] = defaultdict(dict)
    for one in carts:
        for sku, _ in one.cart.lines if one.cart is not None else ():
            if sku not in audit.silent and one.cart is not None:
                wanted[sku][one.cart.order_id] = one
    if not wanted:
        return []
    inspections = tuple(op.InspectOrders(sku, tuple(orders)) for sku, orders in wanted.items())
    lines: list[Line] = []
    for (sku, orders), answer in zip(wanted.items(), (yield from perform(Batch(inspections, inf))), strict=True):
        if isinstance(answer, SegmentedError):
            _note_silent(audit, sku, answer)
            continue
        for inspected in answer:
            record = _record(inspected)
            if record is not None or inspected.raw is None:
                order_id = inspected.order_id
                lines.append(Line(sku, orders[order_id], order_id, record, inspected.hold_until_ms))
    return lines


def _judge_line(audit: CartsAudit, line: Line, fold: LedgerFold) -> bool:
    """Judge a line that was read after its cart; return whether it contradicts the cart."""
    state, pool = line.cart.state, f"in pool {line.sku!r}"
    is_finished = not line.cart.is_unfinished
    if line.state is None and audit.is_gated:
        return False
    if line.state is None and state in {"reserved", "confirmed"}:
        if line.sku == audit.sku and line.order_id in fold.orders:
            return False  # a lost record, already reported
        return _tell(audit, line, "torn cart", f"its order {pool} is gone")
    if state == "confirmed" and line.state == "reserved":
        if is_finished:
            return _tell(audit, line, "leaked hold", f"finished, but its order {pool} is on hold: confirm it there")
        if not (line.is_pinned or audit.is_gated) and line.hold_until_ms is not None:
            return _tell(audit, line, "torn cart", f"its order {pool} may expire: confirm the cart again, or it there")
        return False
    if state == "confirmed" and line.state not in {"confirmed", "returned"}:
        return _tell(audit, line, "torn cart", f"its order {pool} was {line.state}, so the buyer lacks those units")
    if state in VOID and line.state == "confirmed":
        return _tell(audit, line, "torn cart", f"its order {pool} was confirmed, so those units are sold")
    if state in VOID and is_finished and line.is_pinned:
        return _tell(audit, line, "leaked hold", f"finished, but its order {pool} is on hold forever: cancel it there")
    return False


def _is_suspect(line: Line) -> bool:
    """Return whether the line contradicts its cart, unless the cart has changed since it was read."""
    return line.cart.state in UNDER_WAY and line.state in {"confirmed", "cancelled"}


def _judge_again_plan(audit: CartsAudit, suspects: list[Line]) -> Plan[None]:
    """Judge lines against their carts, read again after the lines."""
    if not suspects:
        return
    cart_ids = tuple(dict.fromkeys(line.cart.cart_id for line in suspects))
    now = {one.cart_id: one for one in (yield from perform(op.InspectCarts(audit.sku, cart_ids)))}
    for line in suspects:
        cart = now[line.cart.cart_id]
        is_right = cart.state == "confirmed" if line.state == "confirmed" else cart.state in VOID
        if cart.state is not None and not is_right:
            later = Line(line.sku, cart, line.order_id, line.record, line.hold_until_ms)
            _tell(audit, later, "torn cart", f"its order in pool {line.sku!r} was {line.state} all the same")


def _tell(audit: CartsAudit, line: Line, kind: DriftKind, what: str) -> bool:
    cart = line.cart
    joint = " and" if what.startswith("finished") else ", but"
    audit.add(kind, cart.cart_id, f"cart {cart.cart_id!r} is {cart.state}{joint} {what}", order_id=line.order_id)
    return True


# --- orders that are pinned in this pool ---


def _pinned_plan(audit: CartsAudit) -> Plan[None]:
    holds = yield from scanned_plan(audit.sku, "holds")
    found = [order_id for order_id, until in holds.items() if moment(until) == PINNED_UNTIL_MS]
    for page in pages_of(found, PAGE):
        suspects: dict[str, tuple[str, str]] = {}
        homes: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for record in (yield from _still_pinned_plan(audit, page)):
            cart_id = record.order_id.rpartition("~")[0]
            if record.cart_home is None or not cart_id:
                why = "it is on hold forever, but its record names no cart: finish its cart if it has one, or end it"
                suspects[record.order_id] = (cart_id, why)
            elif record.cart_home not in audit.silent:
                homes[record.cart_home][record.order_id] = cart_id
        suspects |= yield from _without_cart_plan(audit, homes)
        for record in (yield from _still_pinned_plan(audit, tuple(suspects))):
            cart_id, why = suspects[record.order_id]
            audit.add("leaked hold", cart_id, why, order_id=record.order_id)


def _still_pinned_plan(audit: CartsAudit, order_ids: tuple[str, ...]) -> Plan[list[OrderRecord]]:
    """Return which of these orders are reserved and on hold until an explicit confirm or cancel."""
    if not order_ids:
        return []
    records = []
    for inspected in (yield from perform(op.InspectOrders(audit.sku, order_ids))):
        record, until_ms = _record(inspected), inspected.hold_until_ms
        if record is not None and record.state == "reserved" and until_ms == PINNED_UNTIL_MS:
            records.append(record)
    return records


def _without_cart_plan(audit: CartsAudit, homes: dict[str, dict[str, str]]) -> Plan[dict[str, tuple[str, str]]]:
    """Ask the homes of pinned orders which of them no cart will end; returns cart id and reason by order id."""
    leaked: dict[str, tuple[str, str]] = {}
    if not homes:
        return leaked
    inspections = tuple(op.InspectCarts(home, tuple(orders.values())) for home, orders in homes.items())
    for (home, orders), answer in zip(homes.items(), (yield from perform(Batch(inspections, inf))), strict=True):
        if isinstance(answer, PoolMissing) and not isinstance(answer, PoolArchived):
            why = f"it is on hold forever for a cart of {home!r}, but that pool is not open: cancel or confirm it"
            leaked |= {order_id: (cart_id, why) for order_id, cart_id in orders.items()}
        elif isinstance(answer, WrongKind) and home == audit.sku:
            continue  # already reported
        elif isinstance(answer, SegmentedError):
            _note_silent(audit, home, answer)
        else:
            for order_id, one in zip(orders, answer, strict=True):
                if told := _why_leaked(audit, home, order_id, one):
                    leaked[order_id] = (one.cart_id, told)
    return leaked


def _why_leaked(audit: CartsAudit, home: str, order_id: str, one: InspectedCart) -> str | None:
    """Return why no cart will ever end a pinned order; None if one may, or if its home reports it."""
    if one.is_kept and one.cart is None:
        return None
    if one.cart is None or one.cart.order_id != order_id:
        return f"it is on hold forever for cart {one.cart_id!r}, unknown in its home {home!r}: cancel or confirm it"
    if one.is_unfinished or one.state in UNDER_WAY or home == audit.sku:
        return None
    end = "confirm" if one.state == "confirmed" else "cancel"
    return f"it is on hold forever, though cart {one.cart_id!r} of {home!r} is {one.state} and finished: {end} it"


# --- pieces ---


def _record(inspected: Inspected) -> OrderRecord | None:
    return None if inspected.raw is None else parse_record(inspected.order_id, inspected.raw)


def _note_silent(audit: CartsAudit, sku: str, error: SegmentedError) -> None:
    """Remember a pool that did not answer. Raises any other error, and an error of this pool itself."""
    if sku == audit.sku or not isinstance(error, StoreError | PoolArchived):
        raise error
    audit.silent[sku] = error

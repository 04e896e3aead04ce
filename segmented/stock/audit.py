"""The audit: recompute a pool's numbers from its ledger, up to one sequence number, and compare every key with them.

It runs while the pool sells, without false alarms. Totals, units and sequence number are read in one step. A record is
read together with its hold. Customers are read together with the sequence number up to which the fold then continues. A
record that changed later is left for the next audit.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from segmented.errors import StoreRefused
from segmented.models.ids import plural
from segmented.stock.audit_carts import carts_plan
from segmented.stock.audit_fold import AuditFold
from segmented.stock.audit_orders import NO_NUMBER_OF_UNITS, OLDER_NAMES, changes_drift, customers_drift, orders_drift
from segmented.stock.ledger import AuditReport, Drift, DriftKind, LedgerTrimmed, LedgerUnreadable, begin_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from segmented.models import PoolState
    from segmented.plans import Plan
    from segmented.stock.fold import LedgerFold

__all__ = ["AuditReport", "Drift", "DriftKind", "all_drift_plan", "audit_plan"]

NAMED_MAX: Final = 1_000
"""Maximum number of drifts named in a report; `drift_count` counts all."""
TRIES_MAX: Final = 10
LEDGER_END: Final = "end"
"""Name of the drift that stops the pool: a foreign entry after the pool's last change."""
SEGMENT: Final = "segment "
TRANSFER: Final = "transfer "


def audit_plan(sku: str) -> Plan[tuple[AuditReport, AuditFold]]:
    """Audit the pool `sku`; returns the report and the fold on which it is based."""
    state, fold, drift = yield from all_drift_plan(sku)
    carts = yield from carts_plan(state, fold)
    return report_of(state, fold, [*drift, *carts.drift], carts.told()), fold


def report_of(state: PoolState, fold: LedgerFold, drift: list[Drift], unread: tuple[str, ...] = ()) -> AuditReport:
    """Build the report."""
    return AuditReport(
        state=state,
        drift=tuple(drift[:NAMED_MAX]),
        drift_count=len(drift),
        refused_wrongly=len(fold.refused_wrongly),
        oversold=0 if unreadable_totals(state) else max(0, state.confirmed + state.reserved - state.stocked),
        by_kind=dict(Counter(one.kind for one in drift)),
        first_sequence=fold.first_sequence,
        unread=unread,
    )


def all_drift_plan(sku: str) -> Plan[tuple[PoolState, AuditFold, list[Drift]]]:
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
            return without.state, AuditFold(), list(_unreadable_drift(without.state, {}, []))
        return state, fold, drift
    message = f"the ledger of {sku!r} was trimmed {TRIES_MAX} times while it was audited"
    raise StoreRefused(message)


def totals_of(fold: LedgerFold) -> dict[str, int]:
    """Return each total according to the ledger."""
    return {
        "opened": fold.opened,
        "restocked": fold.restocked,
        "withdrawn": fold.withdrawn,
        "sent": fold.sent,
        "received": fold.received,
        "segment_count": fold.segment_count,
        "available": fold.available,
        "reserved": fold.reserved,
        "confirmed": fold.confirmed,
        "closed": int(fold.is_closed),
    }


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
        elif segment.isdecimal() and int(segment) < len(stock):
            detail = f"segment {segment} has {NO_NUMBER_OF_UNITS}, the ledger says {stock[int(segment)]}"
            yield Drift("foreign write", None, detail, "segment", segment)
        elif segment.isdecimal():
            yield Drift("foreign write", None, f"segment {segment} has {NO_NUMBER_OF_UNITS}", "segment", segment)
        else:
            detail = f"there are units of a segment {segment!r}, which is not a whole number"
            yield Drift("foreign write", None, detail, "segment", segment)


def end_drift(state: PoolState) -> list[Drift]:
    if not state.ledger_end:
        return []
    detail = f"the ledger ends with {state.ledger_end}, beyond change {state.sequence}: the pool cannot go on"
    return [Drift("foreign write", None, detail, "ledger", LEDGER_END)]


def totals_drift(state: PoolState, fold: LedgerFold) -> list[Drift]:
    found = {
        "opened": state.opened,
        "restocked": state.restocked,
        "withdrawn": state.withdrawn,
        "sent": state.sent,
        "received": state.received,
        "segment_count": state.segment_count,
        "available": state.available,
        "reserved": state.reserved,
        "confirmed": state.confirmed,
        "closed": int(state.is_closed),
    }
    drift = [
        Drift("foreign write", None, f"{name} is {found[name]}, the ledger says {expected}", "total", name)
        for name, expected in totals_of(fold).items()
        if found[name] != expected and name not in state.unreadable
    ]
    unreadable = list(_unreadable_drift(state, totals_of(fold), fold.stock))
    drift += [one for one in unreadable if one.about == "total"]
    drift += [one for one in unreadable if one.about == "transfer"]
    drift += _transfers_drift(state, fold)
    if sum(state.stock) != fold.available:
        detail = f"the sum over segments is {sum(state.stock)}, the ledger says {fold.available}"
        drift.append(Drift("foreign write", None, detail, "sum", "stock"))
    drift += [
        Drift(
            "foreign write",
            None,
            f"segment {segment} has {units} {plural(units, 'unit')}, the ledger says {expected}",
            "segment",
            str(segment),
        )
        for segment, (units, expected) in enumerate(zip(state.stock, fold.stock, strict=False))
        if units != expected and f"{SEGMENT}{segment}" not in state.unreadable
    ]
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


def impossible_drift(fold: AuditFold) -> Iterator[Drift]:
    for order_id in dict.fromkeys(fold.impossible):
        if order_id in fold.headless:
            detail = "the ledger lacks its reservation, but has later entries"
            yield Drift("foreign write", order_id, detail, "ledger", order_id)
        else:
            yield Drift("duplicate", order_id, "its entries contradict each other", "ledger", order_id)

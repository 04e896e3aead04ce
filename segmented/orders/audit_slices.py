"""Audit a pool in slices, each of bounded work. The next one goes on where the last ended, in any process.

The workers' audit uses it: a task has a time limit, and a pool with 600,000 orders takes longer. A slice reads up to
1,000 changes of the ledger and compares every record that they name; behind the last one the totals are compared. Then
the order database is compared with the pool, page by page. How far it came is a key of the pool, which lapses after a
day.

An order that changes later is compared in the slice of its last change, so nothing is compared twice and nothing that
changes is missed. Two things are left to `pool.audit()`, which does the whole of a ledger that has only one slice:
records that no change names, and each customer's units.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import StoreRefused
from segmented.orders.auditing import BothAudit, BothProgress
from segmented.orders.verifying import own_totals
from segmented.plans import perform, run_sync
from segmented.stock.audit import end_drift, impossible_drift, ledger_drift, totals_drift
from segmented.stock.audit_orders import OrdersAudit, part_plan
from segmented.stock.fold import LedgerFold
from segmented.stock.ledger import PAGE, LedgerTrimmed, extend_plan
from segmented.stock.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models import PoolState
    from segmented.orders.database import OrderDatabase
    from segmented.plans import Plan
    from segmented.stock import Pool

NUMBERS: Final = (
    *("sequence", "chain", "opened", "restocked", "withdrawn", "sent", "received"),
    *("available", "reserved", "confirmed", "is_closed", "stock"),
)
"""Fields of a fold that the next slice needs as they are."""


@dataclass(frozen=True, slots=True)
class SliceReport:
    """The findings of one slice."""

    found: tuple[str, ...]
    """Drifts and differences, each as one line of text."""
    is_ended: bool
    """Whether all was compared: the next slice begins again."""


def audit_slice(pool: Pool, gate: OrderDatabase | None, *, is_over: Callable[[], bool]) -> SliceReport:
    """Audit a pool, and compare it with its order database if it has one, until `is_over` says so.

    Raises PoolMissing, and InvalidInput if the database is another one.
    """
    kept: dict[str, Any] = json.loads(pool.store.execute(op.ReadAudit(pool.sku)) or "{}")
    found: list[str] = []
    while True:
        kept, drift = _next(pool, gate, kept)
        found += drift
        with suppress(StoreRefused):  # a full server keeps nothing: then the next audit begins again
            pool.store.execute(op.KeepAudit(pool.sku, json.dumps(kept)))
        if not kept or is_over():
            return SliceReport(tuple(found), is_ended=not kept)


def _next(pool: Pool, gate: OrderDatabase | None, kept: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Audit one slice of the ledger, or compare one page with the database; returns how far that came."""
    if gate is not None and "both" in kept:
        return _compared(pool, gate, kept["both"])
    if not kept and _is_short(pool):
        report = pool.audit()
        drift = list(map(str, report.drift))
        if report.oversold or report.refused_wrongly:
            drift.append(f"{report.oversold} oversold, {report.refused_wrongly} refused wrongly")
    else:
        kept, drift = run_sync(_slice_plan(pool.sku, kept.get("fold")), pool.store)
        if kept:
            return kept, drift
    return {} if gate is None else {"both": None}, drift


def _is_short(pool: Pool) -> bool:
    start = pool.store.execute(op.ReadLedgerStart(pool.sku))
    return pool.state().sequence - start < PAGE


# --- the pool and its ledger ---


def _slice_plan(sku: str, kept: dict[str, Any] | None) -> Plan[tuple[dict[str, Any], list[str]]]:
    """Fold and compare up to 1,000 changes; nothing is kept behind the last one."""
    start = yield from perform(op.ReadLedgerStart(sku))
    state = yield from perform(op.ReadPool(sku))
    if state.unreadable or start < 1:
        return {}, [f"numbers cannot be read: {', '.join(state.unreadable) or 'ledger_start'}"]
    if kept is not None and (kept["sequence"] < start - 1 or kept["epoch"] != state.epoch):
        kept = None  # it was trimmed beyond that, or rebuilt
    fold = _fold(kept, start)
    end = min(state.sequence, fold.sequence + PAGE)
    try:
        yield from extend_plan(sku, fold, end)
        audit = OrdersAudit(state, fold, Spill(0), Spill(0))
        for number in range(fold.spill.part_count if fold.spill is not None else 0):
            yield from part_plan(audit, number)
    except LedgerTrimmed:
        return {}, []  # the next audit begins behind that
    after = yield from perform(op.ReadPool(sku))
    if after.lost != state.lost:  # records that this slice names were forgotten meanwhile
        return {}, []
    drift = [str(one) for one in (*audit.drift, *ledger_drift(fold), *impossible_drift(fold))]
    drift += [
        f"order {order_id}: its record is of change {sequence}, the ledger ends with {after.sequence}"
        for order_id, sequence in audit.later.items()
        if sequence > after.sequence
    ]
    drift += [f"order {order_id}: refused wrongly" for order_id in fold.refused_wrongly]
    if end < state.sequence:
        return {"fold": _kept(fold, state)}, drift
    return {}, [*drift, *map(str, (*end_drift(state), *totals_drift(state, fold)))]


def _fold(kept: dict[str, Any] | None, start: int) -> LedgerFold:
    if kept is None:
        return LedgerFold(sequence=start - 1, first_sequence=start, available_after=None, has_limit=False)
    numbers = {name: kept[name] for name in NUMBERS}
    fold = LedgerFold(**numbers, first_sequence=kept["first_sequence"], available_after=None, has_limit=False)
    fold.transfers = {(kind, other): (number, units) for kind, other, number, units in kept["transfers"]}
    fold.last_sent = {other: (number, units) for other, number, units in kept["last_sent"]}
    return fold


def _kept(fold: LedgerFold, state: PoolState) -> dict[str, Any]:
    return {name: getattr(fold, name) for name in NUMBERS} | {
        "epoch": state.epoch,
        # Orders whose earlier changes were in an earlier slice are judged as those from before a trim.
        "first_sequence": fold.sequence,
        "transfers": [[*place, *last] for place, last in fold.transfers.items()],
        "last_sent": [[other, *last] for other, last in fold.last_sent.items()],
    }


# --- the pool and its order database ---


def _compared(pool: Pool, gate: OrderDatabase, kept: dict[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
    """Compare one page, or the sums behind the last one, unless the stock changes meanwhile."""
    state = pool.state()
    own_totals(gate, state)
    progress = BothProgress(state.epoch, state.lost) if kept is None else BothProgress(**kept)
    audit = BothAudit(pool, gate, progress)
    for _ in audit.pages():
        return {"both": asdict(progress)}, list(map(str, audit.found))
    report = audit.report()
    return {}, [] if report is None else list(map(str, report.differences))

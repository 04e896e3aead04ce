"""The audit: fold the ledger up to one sequence number and compare every number with what the pool says.

Runs while the pool sells: totals, units and sequence number are read in one step, and a record that was touched later
is left for the next audit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from segmented import operations as op
from segmented.plans import Plan, perform
from segmented.stock.fold import LedgerFold

if TYPE_CHECKING:
    from segmented.models import OrderRecord, PoolState

PAGE: Final = 1_000
NAMED_MAX: Final = 100
"""Drifts named in a report; the count goes on."""

DriftKind = Literal[
    "total differs",
    "segment differs",
    "record lost",
    "record differs",
    "record unexplained",
    "ledger gap",
    "impossible change",
    "not conserved",
    "broken chain",
]


@dataclass(frozen=True, slots=True)
class Drift:
    """One place where the pool and its ledger disagree."""

    kind: DriftKind
    order_id: str | None
    detail: str

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.kind}: {self.detail}"
            if self.order_id is None
            else f"{self.kind}: order {self.order_id}: {self.detail}"
        )


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What the audit found, as of `state.sequence`."""

    state: PoolState
    drift: tuple[Drift, ...]
    drift_count: int
    refused_wrongly: int
    """Recorded refusals at which enough units were free."""
    oversold: int
    """Units confirmed and reserved beyond those ever stocked."""

    @property
    def is_clean(self) -> bool:
        """Does every number follow from the ledger, with nothing oversold and nobody refused wrongly?"""
        return not (self.drift_count or self.refused_wrongly or self.oversold)


def audit_plan(sku: str) -> Plan[tuple[AuditReport, LedgerFold]]:
    """Audit the pool `sku`; returns the report and the fold it rests on."""
    state = yield from perform(op.ReadPool(sku))
    fold = yield from fold_plan(state)
    drift = [*_totals_drift(state, fold), *_ledger_drift(fold)]
    drift += yield from _records_drift(state, fold)
    report = AuditReport(
        state=state,
        drift=tuple(drift[:NAMED_MAX]),
        drift_count=len(drift),
        refused_wrongly=len(fold.refused_wrongly),
        oversold=max(0, state.confirmed + state.reserved - state.stocked),
    )
    return report, fold


def fold_plan(state: PoolState) -> Plan[LedgerFold]:
    """Fold the ledger up to the sequence number of `state`."""
    fold = LedgerFold()
    while fold.sequence < state.sequence:
        limit = min(PAGE, state.sequence - fold.sequence)
        entries = yield from perform(op.ReadLedger(state.sku, fold.sequence, limit))
        known = [entry for entry in entries if entry.sequence <= state.sequence]
        if not known:
            fold.gaps += range(fold.sequence + 1, state.sequence + 1)
            break
        fold.apply(known)
    return fold


def _totals_drift(state: PoolState, fold: LedgerFold) -> list[Drift]:
    drift = [
        Drift("total differs", None, f"{name} is {found}, the ledger says {expected}")
        for name, found, expected in (
            ("opened", state.opened, fold.opened),
            ("restocked", state.restocked, fold.restocked),
            ("withdrawn", state.withdrawn, fold.withdrawn),
            ("the number of segments", state.segment_count, fold.segment_count),
            ("available", state.available, fold.available),
            ("reserved", state.reserved, fold.reserved),
            ("confirmed", state.confirmed, fold.confirmed),
            ("the sum over segments", sum(state.stock), fold.available),
        )
        if found != expected
    ]
    drift += [
        Drift("segment differs", None, f"segment {segment} has {found} units, the ledger says {expected}")
        for segment, (found, expected) in enumerate(zip(state.stock, fold.stock, strict=False))
        if found != expected
    ]
    negative = min(state.available, state.reserved, state.confirmed, *state.stock) < 0
    if negative or state.stocked != state.available + state.reserved + state.confirmed:
        terms = f"{state.available} available + {state.reserved} reserved + {state.confirmed} confirmed"
        drift.append(Drift("not conserved", None, f"stocked {state.stocked}, but {terms}"))
    return drift


def _ledger_drift(fold: LedgerFold) -> list[Drift]:
    drift = [Drift("ledger gap", None, f"entry {sequence} is missing") for sequence in fold.gaps]
    drift += [
        Drift("broken chain", None, f"entry {sequence} is not what was written, or follows another")
        for sequence in fold.broken
    ]
    drift += [Drift("impossible change", order_id, "its entries contradict each other") for order_id in fold.impossible]
    return drift


def _records_drift(state: PoolState, fold: LedgerFold) -> Plan[list[Drift]]:
    drift: list[Drift] = []
    order_ids = list(fold.orders)
    for first in range(0, len(order_ids), PAGE):
        page = tuple(order_ids[first : first + PAGE])
        records = yield from perform(op.ReadOrders(state.sku, page))
        drift += [
            found
            for order_id, record in zip(page, records, strict=True)
            if (found := _compare(order_id, record, state, fold))
        ]
    if state.order_count > len(order_ids):
        drift += yield from _unexplained(state, fold)
    return drift


def _compare(order_id: str, record: OrderRecord | None, state: PoolState, fold: LedgerFold) -> Drift | None:
    expected = fold.orders[order_id]
    if record is None:
        return Drift("record lost", order_id, f"the ledger says {expected.state}")
    if record.sequence > state.sequence:
        return None  # touched since
    if (record.state, record.quantity, record.sequence) == (expected.state, expected.quantity, expected.sequence):
        return None
    found = f"{record.state} with {record.quantity} units at {record.sequence}"
    return Drift("record differs", order_id, f"{found}, the ledger says {expected}")


def _unexplained(state: PoolState, fold: LedgerFold) -> Plan[list[Drift]]:
    drift: dict[str, Drift] = {}
    cursor = -1
    while cursor != 0:
        cursor, records = yield from perform(op.ScanOrders(state.sku, max(cursor, 0)))
        for record in records:
            if record.order_id not in fold.orders and record.sequence <= state.sequence:
                detail = f"{record.state} with {record.quantity} units, but no ledger entry"
                drift[record.order_id] = Drift("record unexplained", record.order_id, detail)
    return list(drift.values())

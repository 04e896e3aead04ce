"""The accounts at the end: the audit of every pool, and what the order database says beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from segmented.celery.selling.book import Outcome
    from segmented.celery.selling.orders_file import OrdersFile
    from segmented.orders import Gate
    from segmented.stock import Pool

NAMED_MAX: Final = 100
"""Differences named, of each kind and pool."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """What was found. Drift names every place where records, ledger and database disagree; there should be none."""

    drift: tuple[str, ...]
    oversold: int
    refused_wrongly: int
    sql_units: int
    """Units of the file's orders that the database has confirmed."""


def settle_accounts(
    pools: Mapping[str, Pool], gate: Gate, file: OrdersFile, outcomes: Mapping[str, Outcome]
) -> Accounts:
    """Audit every pool, add up the database, and compare order by order."""
    drift: list[str] = []
    oversold = refused_wrongly = sql_units = 0
    for sku, pool in pools.items():
        audit = pool.audit()
        drift += map(str, audit.drift)
        if audit.drift_count > len(audit.drift):
            drift.append(f"and {audit.drift_count - len(audit.drift)} more of {sku!r}")
        refused_wrongly += audit.refused_wrongly
        sold = gate.confirmed_units(sku)
        oversold += max(audit.oversold, sold - audit.state.stocked, 0)
        drift += _totals_drift(pool, gate, confirmed_before=audit.state.confirmed, sold=sold)
        units, differing = _compare_orders(sku, gate, file, outcomes)
        sql_units += units
        drift += differing
    return Accounts(tuple(drift), oversold, refused_wrongly, sql_units)


def _totals_drift(pool: Pool, gate: Gate, *, confirmed_before: int, sold: int) -> Iterator[str]:
    """Compare totals. The database comes first in every order, so it lies between two readings of the pool."""
    after = pool.state()
    if not confirmed_before <= sold <= after.confirmed + after.reserved:
        yield f"pool {pool.sku!r} has {after.confirmed} units confirmed, the order database has {sold}"
    rows = gate.totals(pool.sku).sold
    if rows < sold:
        yield f"the segment rows of {pool.sku!r} have {rows} units sold, its order rows {sold}"


def _compare_orders(sku: str, gate: Gate, file: OrdersFile, outcomes: Mapping[str, Outcome]) -> tuple[int, list[str]]:
    lines = {order_id: line for order_id, line in file.orders.items() if line.sku == sku}
    rows = gate.orders(sku, lines)
    units = 0
    differing: list[str] = []
    for order_id, line in lines.items():
        row = rows.get(order_id)
        stored = row.quantity if row is not None and row.state == "confirmed" else 0
        units += stored
        outcome = outcomes.get(order_id)
        expected = line.order.quantity if outcome is not None and outcome.state == "confirmed" else 0
        if stored != expected and outcome is not None:
            differing.append(
                f"order {order_id} is {outcome.state}, but the order database has {stored} units confirmed"
            )
    if len(differing) > NAMED_MAX:
        differing[NAMED_MAX:] = [f"and {len(differing) - NAMED_MAX} more orders of {sku!r}"]
    return units, differing

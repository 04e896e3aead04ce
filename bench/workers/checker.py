"""Checks that all orders are accounted for. A part that fails the check has no figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op

if TYPE_CHECKING:
    from segmented.orders import Gate
    from segmented.stock import Pool


def faults(pool: Pool, sent: int, gate: Gate | None = None) -> str:
    """Return the faults after `sent` orders of one unit, all of which should be confirmed; empty if there are none."""
    state, report = pool.state(), pool.audit()
    outbox = pool.store.execute(op.ReadOutbox(pool.sku))
    found = [
        (state.confirmed != sent, f"{state.confirmed:,} of {sent:,} orders were confirmed"),
        (state.reserved != 0, f"{state.reserved:,} units are reserved still"),
        (bool(outbox.waiting), f"{outbox.waiting:,} orders wait in the outbox"),
        (bool(outbox.dead), f"{outbox.dead:,} orders are in the dead-letter set"),
        (bool(report.drift_count), f"the audit found {report.drift_count} drifts, the first: {report.drift[:1]}"),
        (bool(report.oversold), f"{report.oversold:,} units were oversold"),
        (bool(report.refused_wrongly), f"{report.refused_wrongly:,} orders were refused wrongly"),
    ]
    if gate is not None:
        sold = gate.totals(pool.sku).sold
        found.append((sold != sent, f"the order database has {sold:,} of {sent:,} orders"))
    return "; ".join(sentence for is_so, sentence in found if is_so)

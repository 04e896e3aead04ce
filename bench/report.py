"""Prints results: a table on a terminal, or lines into a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.findings import share_of_bound
from bench.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.record import RunRecord

LABELS = (
    "segments",
    "orders/s",
    "bound: orders/s",
    "share of the bound",
    "hold, ms (mean)",
    "stock",
    "sold",
    "oversold",
    "refused",
    "refused wrongly",
    "wait p50, ms",
    "wait p99, ms",
    "cores: generator",
    "cores: Redis",
    "cores: database",
)


def table(runs: Sequence[RunRecord]) -> Table:
    """Return a table with one column per strategy, which fits into a narrow terminal."""
    shown = Table()
    shown.add_column("")
    for run in runs:
        shown.add_column(run.strategy, justify="right", style="red" if run.violations else None)
    for label, *row in rows(runs)[1:]:
        shown.add_row(label, *row, style="bold" if label == "orders/s" else None)
    return shown


def rows(runs: Sequence[RunRecord]) -> list[list[str]]:
    """Return the table as text; the first row is the header."""
    head = ["", *(run.strategy for run in runs)]
    return [head, *map(list, zip(LABELS, *(cells(run) for run in runs), strict=True))]


def cells(run: RunRecord) -> list[str]:
    """Return a run's cells, in the order of the labels."""
    return [
        f"{run.segments:,}",
        rate(run),
        f"{run.bound_per_s:,.1f}",
        share(run),
        f"{run.hold_ms:,.1f}",
        f"{run.stock:,}",
        f"{run.sold:,}",
        f"{run.oversold:,}",
        f"{run.refused:,}",
        f"{run.refused_wrongly:,}",
        f"{run.wait_ms.p50:,.1f}",
        f"{run.wait_ms.p99:,.1f}",
        f"{run.generator_cpu:.2f}",
        f"{run.redis_cpu:.2f}",
        "-" if run.database_cpu is None else f"{run.database_cpu:.2f}",
    ]


def line(run: RunRecord) -> str:
    """Return a run as one line."""
    database = "" if run.database_cpu is None else f", database {run.database_cpu:.2f}"
    segments = counted(run.segments, "segment")
    extra = f", by the gate {run.refused_by_gate:,}" if run.refused_by_gate else ""
    extra += f"; {run.failed:,} ended in errors" if run.failed else ""
    return (
        f"{run.strategy}: {rate(run)} orders/s ({share(run)} of {run.bound_per_s:,.1f}, {segments}, "
        f"hold {run.hold_ms:.1f} ms); sold {run.sold:,} of {run.stock:,}, oversold {run.oversold:,}; "
        f"refused {run.refused:,}, wrongly {run.refused_wrongly:,}{extra}; "
        f"wait p50 {run.wait_ms.p50:,.1f} ms, p99 {run.wait_ms.p99:,.1f} ms; "
        f"cores: generator {run.generator_cpu:.2f}, Redis {run.redis_cpu:.2f}{database}"
    )


def rate(run: RunRecord) -> str:
    """Return orders per second, or a dash for a run that broke a guarantee."""
    return "-" if run.orders_per_s is None else f"{run.orders_per_s:,.1f}"


def share(run: RunRecord) -> str:
    """Return the share of the bound, or a dash; the control has none."""
    found = share_of_bound(run)
    return "-" if found is None else f"{found:.1%}"


def described_conditions(found: dict[str, Any]) -> str:
    """Return the conditions as one line."""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    machine = f"{found['cores']} cores for everything ({found['cpu_model']})"
    return f"Conditions: {machine}; {versions}; commit {found['commit'] or 'unknown'}."

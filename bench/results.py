"""The results of a benchmark: records, conditions, whether every guarantee held, and how they are printed.

On a terminal they are a table, in a pipe lines.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from rich.table import Table

from bench.findings import share_of_bound
from segmented import files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from bench.record import RunRecord

BAR: Final = 36
"""Characters of the longest bar, which leaves room for its numbers in 80 columns."""
NAMED: Final = 14
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


class Findings(Protocol):
    """The results of any benchmark."""

    @property
    def is_kept(self) -> bool:
        """Did every promise hold?"""

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the file."""

    def show(self, console: Console) -> None:
        """Print the results."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the demo."""

    benchmark: str
    runs: tuple[RunRecord, ...]
    conditions: dict[str, Any]
    findings: dict[str, Any] = field(default_factory=dict)
    """Figures derived from several runs."""
    remarks: Sequence[str] = ()
    """The conclusions, one sentence each."""

    @property
    def is_kept(self) -> bool:
        """Did every promise hold?"""
        return not any(run.violations for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the file."""
        return {
            "benchmark": self.benchmark,
            "runs": [run.as_json() for run in self.runs],
            "conditions": self.conditions,
            "findings": self.findings,
            "remarks": list(self.remarks),
        }

    def rows(self) -> list[list[str]]:
        """Return the table as text; the first row is the header."""
        head = ["", *(run.strategy for run in self.runs)]
        return [head, *map(list, zip(LABELS, *(cells(run) for run in self.runs), strict=True))]

    def show(self, console: Console) -> None:
        """Print the table (in a pipe its lines were printed before), the remarks and the conditions."""
        if console.is_terminal:
            console.print(self.table())
        for bar in bars(self.runs):
            console.print(bar, highlight=False, soft_wrap=True)
        for text in (*self.remarks, described_conditions(self.conditions)):
            console.print(text, highlight=False, soft_wrap=not console.is_terminal)

    def table(self) -> Table:
        """Return a table with one column per strategy, which fits into a narrow terminal."""
        shown = Table()
        shown.add_column("")
        for run in self.runs:
            shown.add_column(run.strategy, justify="right", style="red" if run.violations else None)
        for label, *row in self.rows()[1:]:
            shown.add_row(label, *row, style="bold" if label == "orders/s" else None)
        return shown


def bars(runs: Sequence[RunRecord]) -> list[str]:
    """Return a bar for each rate, up to a mark at its bound; runs that broke a guarantee have none."""
    shown = [
        (run.strategy, run.orders_per_s, run.bound_per_s) for run in runs if run.orders_per_s and not run.is_control
    ]
    scale = BAR / max((max(rate, bound) for _, rate, bound in shown), default=1.0)
    lines = []
    for name, rate, bound in shown:
        done, whole = max(1, round(rate * scale)), max(1, round(bound * scale))
        bar = "█" * done + "·" * (whole - done)
        lines.append(f"{name:<{NAMED}}{bar[:whole]}│{bar[whole:]} {rate:,.0f} of {bound:,.0f} orders/s")
    return lines


def check_writable(file: Path | None, *, option: str = "--json") -> None:
    """Check before measuring that the file can be written. Raises InvalidInput."""
    if file is not None:
        files.check_writable(file, option)


def write(results: Findings, file: Path | None) -> None:
    """Write the results, if a file was given."""
    if file is None:
        return
    files.write_whole(file, json.dumps(results.as_json(), indent=2) + "\n")


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


def show_torture(
    console: Console, title: str, rows: Sequence[tuple[str, str]], broken: Sequence[str], conditions: dict[str, Any]
) -> None:
    """Print the rows of a torture run, what broke, and the conditions."""
    if console.is_terminal:
        shown = Table("", title)
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    else:
        for label, value in rows:
            console.print(f"{label}: {value}", highlight=False, soft_wrap=True)
    end = [f"BROKEN: {sentence}" for sentence in broken] or ["Every promise held."]
    for sentence in (*end, described_conditions(conditions)):
        console.print(sentence, highlight=False, soft_wrap=not console.is_terminal)


def described_conditions(found: dict[str, Any]) -> str:
    """Return the conditions as one line."""
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    machine = f"{found['cores']} cores for everything ({found['cpu_model']})"
    return f"Conditions: {machine}; {versions}; commit {found['commit'] or 'unknown'}."


def counted(number: int, what: str) -> str:
    """Return `1 run` or `2 runs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"

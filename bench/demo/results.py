"""The results of the demo: a table, a bar for each rate, the conclusions, and the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from bench.demo.findings import story
from bench.results import described_conditions
from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from bench.demo.runs import DemoRun

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


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the demo."""

    benchmark: str
    runs: tuple[DemoRun, ...]
    conditions: dict[str, Any]
    findings: dict[str, Any] = field(default_factory=dict)
    """Figures derived from several runs."""
    remarks: Sequence[str] = ()
    """The conclusions, one sentence each."""
    is_verbose: bool = False
    """Whether `show` prints all figures."""

    @property
    def is_kept(self) -> bool:
        """Return whether every promise held."""
        return not any(run.violations for run in self.runs)

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the file."""
        return {
            "benchmark": self.benchmark,
            "runs": [run.run.model_dump(mode="json", by_alias=True) for run in self.runs],
            "conditions": self.conditions,
            "findings": self.findings,
            "remarks": list(self.remarks),
        }

    def rows(self) -> list[list[str]]:
        """Return the table as text; the first row is the header."""
        head = ["", *(run.strategy for run in self.runs)]
        return [head, *map(list, zip(LABELS, *(cells(run) for run in self.runs), strict=True))]

    def show(self, console: Console) -> None:
        """Print the bars and the story; with `is_verbose` the table, the remarks and the conditions as well."""
        if self.is_verbose and console.is_terminal:
            console.print(self.table())
        more = (*self.remarks, described_conditions(self.conditions)) if self.is_verbose else ()
        for bar in bars(self.runs):
            console.print(bar, highlight=False, soft_wrap=True)
        for text in (*story(self.runs), *more):
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


def bars(runs: Sequence[DemoRun]) -> list[str]:
    """Return a bar for each rate, up to a mark at its bound; runs that broke a guarantee have none."""
    shown = [(run.strategy, run.rate, run.bound_per_s) for run in runs if run.rate and not run.run.is_control]
    scale = BAR / max((max(rate, bound) for _, rate, bound in shown), default=1.0)
    lines = []
    for name, rate, bound in shown:
        done, whole = max(1, round(rate * scale)), max(1, round(bound * scale))
        bar = "█" * done + "·" * (whole - done)
        lines.append(f"{name:<{NAMED}}{bar[:whole]}│{bar[whole:]} {rate:,.0f} of {bound:,.0f} orders/s")
    return lines


def cells(run: DemoRun) -> list[str]:
    """Return a run's cells, in the order of the labels."""
    checker, cpu = run.run.checker, run.run.cpu
    return [
        f"{run.run.cell.segments:,}",
        rate(run),
        f"{run.bound_per_s:,.1f}",
        share(run),
        f"{run.hold_ms:,.1f}",
        f"{checker.stock:,}",
        f"{checker.sold:,}",
        f"{checker.oversold:,}",
        f"{run.run.counts.sold_out:,}",
        f"{checker.refused_wrongly:,}",
        f"{run.wait_ms(50):,.1f}",
        f"{run.wait_ms(99):,.1f}",
        f"{cpu.generator:.2f}",
        f"{cpu.redis:.2f}",
        "-" if cpu.database is None else f"{cpu.database:.2f}",
    ]


def line(run: DemoRun) -> str:
    """Return a run as one line."""
    checker, cpu, counts = run.run.checker, run.run.cpu, run.run.counts
    database = "" if cpu.database is None else f", database {cpu.database:.2f}"
    segments = counted(run.run.cell.segments, "segment")
    failed = f"; {counts.failed:,} ended in errors" if counts.failed else ""
    return (
        f"{run.strategy}: {rate(run)} orders/s ({share(run)} of {run.bound_per_s:,.1f}, {segments}, "
        f"hold {run.hold_ms:.1f} ms); sold {checker.sold:,} of {checker.stock:,}, oversold {checker.oversold:,}; "
        f"refused {counts.sold_out:,}, wrongly {checker.refused_wrongly:,}{failed}; "
        f"wait p50 {run.wait_ms(50):,.1f} ms, p99 {run.wait_ms(99):,.1f} ms; "
        f"cores: generator {cpu.generator:.2f}, Redis {cpu.redis:.2f}{database}"
    )


def rate(run: DemoRun) -> str:
    """Return orders per second, or a dash for a run that broke a guarantee."""
    return "-" if run.rate is None else f"{run.rate:,.1f}"


def share(run: DemoRun) -> str:
    """Return the share of the bound, or a dash; the control has none."""
    return "-" if run.share_of_bound is None else f"{run.share_of_bound:.1%}"

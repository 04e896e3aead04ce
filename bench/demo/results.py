"""The runs of the demo and its results: a bar for each rate, what they show in a few sentences, a table, the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench import sizing
from bench.engine.percentiles import at_ms, decoded
from bench.results import described_conditions, say, show_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from bench.engine.record import Run

CONTROL: Final = "no-lock"
ONE_LOCK: Final = "global-lock"
SEGMENTS: Final = "segment-locks"
LOCK_FREE: Final = "lock-free"
STORIES: Final = {
    CONTROL: "No lock: each buyer reads a counter, does the slow step, and writes the counter back. It sells too much.",
    ONE_LOCK: "One lock for the whole stock: the slow step of one buyer at a time.",
    SEGMENTS: "The same stock in segments, each with a lock of its own: as many slow steps at a time.",
    LOCK_FREE: "No lock around the slow step: one script takes the unit first, and a confirmation ends the order.",
}
"""A description of each sale, in the order of the sales."""
MACHINE: Final = "machine"
BAR: Final = 36
"""Characters of the longest bar, which leaves room for its numbers in 80 columns."""
NAMED: Final = 14
MILLISECONDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One strategy: the engine's record, and what was measured before it."""

    run: Run
    lone_hold_ms: float
    """Mean hold of a lone buyer, measured before the sale without contention."""

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return self.run.cell.strategy

    @property
    def bound_per_s(self) -> float:
        """Orders per second if every lane always worked on one order for as long as a lone buyer does."""
        return sizing.bound_per_s(self.run.lanes, self.lone_hold_ms / MILLISECONDS)

    @property
    def rate(self) -> float | None:
        """Orders per second; None for a run that broke a promise. That of the control counts what it oversold too."""
        run = self.run
        if run.is_control and not self.violations and run.fairness is not None:
            return sum(run.fairness.by_buyer) / run.window_s
        return run.orders_per_s

    @property
    def share_of_bound(self) -> float | None:
        """Return the rate as a share of the bound; None for a run without throughput and for the control."""
        if self.run.orders_per_s is None or self.run.is_control:
            return None
        return round(self.run.orders_per_s / self.bound_per_s, 3)

    @property
    def violations(self) -> tuple[str, ...]:
        """Return why the run does not count; the control must fail, but must answer every order."""
        if not self.run.is_control:
            return self.run.void
        failed, first = self.run.counts.failed, self.run.counts.first_failure
        return (f"orders without an answer: {failed}, the first: {first or 'cut short'}",) if failed else ()

    def figures(self) -> dict[str, str]:
        """Return all figures as text."""
        run, checker, cpu, wait = self.run, self.run.checker, self.run.cpu, decoded(self.run.times.wait.encoded)
        return {
            "segments": f"{run.cell.segments:,}",
            "orders/s": "-" if self.rate is None else f"{self.rate:,.1f}",
            "bound: orders/s": f"{self.bound_per_s:,.1f}",
            "share of the bound": "-" if self.share_of_bound is None else f"{self.share_of_bound:.1%}",
            "hold, ms (mean)": f"{run.times.hold.mean or 0.0:,.1f}",
            "stock": f"{checker.stock:,}",
            "sold": f"{checker.sold:,}",
            "oversold": f"{checker.oversold:,}",
            "refused": f"{run.counts.sold_out:,}",
            "refused wrongly": f"{checker.refused_wrongly:,}",
            "wait p50, ms": f"{at_ms(wait, 50):,.1f}",
            "wait p99, ms": f"{at_ms(wait, 99):,.1f}",
            "cores: generator": f"{cpu.generator:.2f}",
            "cores: Redis": f"{cpu.redis:.2f}",
            "cores: database": "-" if cpu.database is None else f"{cpu.database:.2f}",
            "saturated": ", ".join(run.saturated) or "-",
        }


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the demo."""

    benchmark: str
    runs: tuple[DemoRun, ...]
    conditions: dict[str, Any]
    is_verbose: bool = False
    """Whether `show` prints all figures."""

    @property
    def remarks(self) -> list[str]:
        """Return what the runs show, one sentence each."""
        return list(story(self.runs))

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
            "findings": findings(self.runs),
            "remarks": self.remarks,
        }

    def rows(self) -> list[list[str]]:
        """Return the table as text, a column per strategy; the first row is the header."""
        figures = [run.figures() for run in self.runs]
        return [
            ["", *(run.strategy for run in self.runs)],
            *([name, *(one[name] for one in figures)] for name in figures[0]),
        ]

    def show(self, console: Console) -> None:
        """Print the bars and the remarks; with `is_verbose` the table and the conditions as well."""
        if self.is_verbose:
            head, *rows = self.rows()
            show_rows(console, head, rows, lambda name, *cells: f"{name or 'strategy'}: {', '.join(cells)}")
        for bar in bars(self.runs):
            console.print(bar, highlight=False, soft_wrap=True)
        say(console, *self.remarks, *([described_conditions(self.conditions)] if self.is_verbose else ()))


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


def findings(runs: Sequence[DemoRun]) -> dict[str, Any]:
    """Return the ratio, the bounds and the shares of them, and what was saturated."""
    by_name = {run.strategy: run for run in runs}
    many, one = by_name[SEGMENTS].run.orders_per_s, by_name[ONE_LOCK].run.orders_per_s
    return {
        "segment_locks_per_global_lock": round(many / one, 2) if many and one else None,
        "lone_hold_ms": {run.strategy: run.lone_hold_ms for run in runs},
        "bound_per_s": {run.strategy: round(run.bound_per_s, 2) for run in runs},
        "share_of_bound": {run.strategy: run.share_of_bound for run in runs},
        "saturated": {run.strategy: list(run.run.saturated) for run in runs},
    }


def story(runs: Sequence[DemoRun]) -> Iterator[str]:
    """Return what was compared and which won, in about five lines for a reader who knows nothing of it."""
    control, one, many, free = (next(run for run in runs if run.strategy == name) for name in STORIES)
    checker = control.run.checker
    yield f"No lock: {checker.sold:,} units sold of {checker.stock:,}. {checker.oversold:,} buyers get nothing."
    if one.rate:
        yield f"One lock: {one.rate:,.1f} orders/s."
    if many.rate and one.rate:
        times = f"{many.rate / one.rate:.1f} times one lock"
        yield f"{many.run.cell.segments} segment locks: {many.rate:,.1f} orders/s, {times}."
    if free.rate:
        yield f"No lock around the slow step: {free.rate:,.1f} orders/s, for steps that may run side by side."
    if not any(run.violations for run in (one, many, free)):
        yield "These three sold no unit twice, and refused nobody while a unit was free."
    for run in runs:
        if not run.run.counts.sold_out:
            yield f"{run.strategy}: the time limit came before the last unit was sold."
        yield from (f"{run.strategy} broke its promise: {sentence}." for sentence in run.violations)
    if busy := [run.strategy for run in runs if MACHINE in run.run.saturated]:
        yield f"All cores were busy in {', '.join(busy)}: close other programs and repeat."
    yield "Next: `segmented advise --help` says what your own sale needs."

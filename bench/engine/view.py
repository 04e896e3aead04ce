"""Shows a session: a bar with the time left on a terminal, or a line per run in a pipe, and a table at the end."""

from __future__ import annotations

from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress as RichProgress, SpinnerColumn, TextColumn
from rich.table import Table

from bench.engine.schedule import spoken
from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from bench.display import Progress
    from bench.engine.grid import Grid
    from bench.engine.record import ResultFile, Run
    from bench.engine.schedule import Turn
    from bench.engine.session import SessionDisplay


class LineView:
    """Prints one line per run."""

    def __init__(self, console: Console) -> None:
        """Print on `console`."""
        self.console = console
        self.runs_planned = 0

    def begun(self, grid: Grid, *, done: int, left: float) -> None:
        """Print what will be done, and the planned time."""
        self.runs_planned = grid.runs_planned
        self.print(
            f"{counted(len(grid.cells), 'cell')}, {counted(grid.rounds, 'round')},"
            f" {counted(grid.runs_planned, 'run')}; by the plan {spoken(left)}"
        )
        if grid.budget is not None:
            self.print(f"No run is started that would not end within {grid.budget:g} s.")
        for sentence in grid.left_out:
            self.print(f"Left out: {sentence}.")
        if done:
            self.print(f"{counted(done, 'run', 'is')} done already and kept.")

    @contextmanager
    def run(self, turn: Turn, left: float | None) -> Iterator[Progress]:  # noqa: ARG002  # a bar shows them
        """Print nothing during a run."""
        yield _nobody

    def finished(self, turn: Turn, run: Run, left: float) -> None:
        """Print its line."""
        what = f"run {turn.number} of {self.runs_planned}, round {turn.round}: {run.cell_id}: {result_of(run)}"
        self.print(f"{what}; about {spoken(left)} left" if left else what)

    def said(self, sentence: str) -> None:
        """Print it."""
        self.print(f"{sentence[:1].upper()}{sentence[1:]}.")

    def print(self, line: str) -> None:
        """Print a line without wrapping or highlighting."""
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)


class BarView(LineView):
    """A bar over all runs; the lines of the runs scroll above it."""

    def __init__(self, console: Console) -> None:
        """Draw on `console`."""
        super().__init__(console)
        self._done = 0

    def begun(self, grid: Grid, *, done: int, left: float) -> None:
        """Print the plan, and start the count of runs."""
        super().begun(grid, done=done, left=left)
        self._done = done

    @contextmanager
    def run(self, turn: Turn, left: float | None) -> Iterator[Progress]:
        """Show the run, and the estimated time left."""
        remaining = "time left: known after the first run" if left is None else f"about {spoken(left)} left"
        columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
        with RichProgress(*columns, console=self.console, transient=True) as bars:
            bar = bars.add_task("", total=self.runs_planned, completed=self._done)

            def progress(phase: str, done: int, total: int) -> None:
                part = f" {100 * done / total:.0f} %" if total > 1 else ""
                bars.update(bar, description=f"{remaining}; {turn.planned.cell.cell_id}: {phase}{part}")

            progress("starting", 0, 1)
            yield progress

    def finished(self, turn: Turn, run: Run, left: float) -> None:
        """Print the run's line, and advance."""
        self._done += 1
        super().finished(turn, run, left)


def _nobody(_: str, __: int, ___: int) -> None:
    """Ignore the progress of a run."""


def view_on(console: Console) -> SessionDisplay:
    """Return a bar view for a terminal, else lines."""
    return BarView(console) if console.is_terminal else LineView(console)


def result_of(run: Run) -> str:
    """Return a run's result in a few words."""
    if run.orders_per_s is None:
        return f"void: {run.void[0]}"
    limit = f", limited by {' and '.join(run.saturated)}" if run.saturated else ""
    return f"{run.orders_per_s:,.1f} orders/s{limit}"


def show_results(found: ResultFile, console: Console) -> None:
    """Print each cell once: medians and extremes over its runs, and why runs are void."""
    table = Table(title="Orders that hold stock, a second; each cell over its runs", title_justify="left")
    table.add_column("cell", overflow="fold")
    for head in ("runs", "void", "least", "median", "most"):
        table.add_column(head, justify="right")
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in found.runs:
        cells.setdefault((run.cell_id, run.arm), []).append(run)
    for (cell_id, arm), runs in sorted(cells.items(), key=lambda item: (item[1][0].sweeps, item[0])):
        rates = [run.orders_per_s for run in runs if run.orders_per_s is not None]
        shown = [f"{value:,.1f}" for value in (min(rates), median(rates), max(rates))] if rates else ["-"] * 3
        table.add_row(cell_id + (" (arm B)" if arm == "B" else ""), str(len(runs)), str(len(runs) - len(rates)), *shown)
    console.print(table)
    for reason, count in _reasons(found.runs):
        console.print(f"Void {count} x: {reason}", highlight=False, soft_wrap=True, markup=False)


def _reasons(runs: Sequence[Run]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for run in runs:
        if run.void:
            reason = f"{run.cell_id}: {run.void[0]}"
            counts[reason] = counts.get(reason, 0) + 1
    return list(counts.items())


def broken(run: Run) -> tuple[str, ...]:
    """Return the guarantees of a strategy that a run broke. A control has none."""
    if run.is_control:
        return ()
    found = run.checker
    is_broken = {
        "oversold": found.oversold > 0 and bool(run.guarantees.get("never_oversells")),
        "refused wrongly": found.refused_wrongly > 0 and bool(run.guarantees.get("sold_out_is_exact")),
        "stranded": found.stranded > 0 and bool(run.guarantees.get("sold_out_is_exact")),
        "more than one effect": found.duplicates > 0 and bool(run.guarantees.get("one_effect_per_order")),
        "acknowledged and not known": found.lost > 0,
        "the order database says otherwise": found.sold_in_sql is not None and found.sold_in_sql != found.sold,
        "drift": found.audit not in {"clean", "none"},
    }
    return tuple(name for name, is_so in is_broken.items() if is_so)

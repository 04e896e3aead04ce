"""A session: the runs of a plan, interleaved, each on a fresh server. Each finished run is saved at once, and shown.

There is a line per run, and on a terminal the time left. A table follows at the end.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape

from bench.children import close_process, kill_group, start_child, tell_child
from bench.engine.cell import CALIBRATION_STOCK, RunAssignment
from bench.engine.folder import ResultsFolder
from bench.engine.plan import Estimate, grid_of, spoken, stock_of, turns_of, wanted
from bench.engine.record import EndLine, Run, SessionLine
from bench.engine.servers import SessionServers, commit_of, environment_of
from bench.engine.summary import lost_run
from bench.results import say, show_rows
from bench.strategies.own import OWN
from segmented.errors import InvalidInput, SegmentedError
from segmented.models.ids import counted

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from rich.console import Console

    from bench.engine.cell import Cell
    from bench.engine.plan import Grid, LoadedPlan, PlannedCell, Turn
    from bench.engine.record import ResultFile
    from bench.results import Progress

MODULE: Final = "bench.engine.run_cell"
LAST_WORDS_MAX: Final = 100_000
ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
OVERTIME: Final = 10.0
"""Seconds beyond the budget after which a session's last run is cut off."""


class Ended(Exception):
    """A signal asked the session to end."""

    def __init__(self, number: int) -> None:
        """Create it from the number of the signal."""
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The measurements to make, the servers to use, and the folder for the results."""

    loaded: LoadedPlan
    folder: Path
    _: KW_ONLY
    is_quick: bool = False
    only: tuple[str, ...] = ()
    """Sweeps to run; empty: all sweeps of the plan."""
    url: str | None = None
    database: str | None = None


def run_session(options: SessionOptions, display: SessionView) -> Path:
    """Do the remaining runs of a session; return the results file.

    Raises InvalidInput if the plan cannot be measured or a server dies, and passes interrupts on. Finished runs are
    kept, and the same call continues from there.
    """
    began = time.monotonic()
    grid = grid_of(options.loaded, is_quick=options.is_quick, only=options.only)
    turns = turns_of(grid)
    with (
        ends_as_exceptions(),
        ResultsFolder(options.folder) as folder,
        SessionServers(options.url, options.database) as servers,
    ):
        using = [one.cell.buyers for one in grid.cells if one.needs_database]
        described = servers.prepare(database_connections=max(using) if using else None)
        session = SessionLine(
            plan=options.loaded.plan.model_dump(mode="json", by_alias=True),
            plan_sha256=options.loaded.sha256,
            plan_commit=commit_of(options.loaded.file),
            is_quick=options.is_quick,
            sweeps=options.only,
            left_out=grid.left_out,
            started_at=_now(),
            environment=environment_of(folder.path, described, placement=servers.placement),
        )
        if folder.is_new():
            folder.begin(session, options.loaded.text)
            done: dict[int, Run] = {}
        else:
            done = folder.go_on(session)
        display.said(f"results go to {folder.path}")
        _Session(grid, turns, folder, servers, display, began, done).work()
        return folder.results


def kept_in(folder: Path, runs: int) -> str:
    """Return which runs a session that had to stop has kept, and how to go on."""
    if not runs:
        return f"no run was finished; {folder} can be used again"
    return (
        f"the {counted(runs, 'finished run', 'is')} kept in {folder}; the same command with --report {folder} goes on"
    )


@contextmanager
def ends_as_exceptions() -> Iterator[None]:
    """Turn terminating signals into exceptions, so that no server and no partial run is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDS}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # `nohup` ignores SIGHUP
            signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    for other in ENDS:
        signal.signal(other, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise Ended(number)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(slots=True)
class _Session:
    grid: Grid
    turns: list[Turn]
    folder: ResultsFolder
    servers: SessionServers
    display: SessionView
    began: float
    done: dict[int, Run]
    loader: MeasuringProcess | None = None
    """The process that has loaded everything, and forks for each run of a round."""
    loaded_for: int = 0
    """That round."""

    def work(self) -> None:
        """Do the remaining runs, and write the end line."""
        estimate = Estimate(self.grid.calibration)
        left = [turn for turn in self.turns if turn.number not in self.done]
        stopped_by: str | None = "killed in a way that left it no time to say why"
        try:
            self.display.begun(self.grid, done=len(self.done), left=estimate.left(left, self.folder.rates))
            stopped_by = self._turns(left, estimate)
        except BaseException as error:
            stopped_by = _why(error)
            if isinstance(error, SegmentedError):
                raise InvalidInput(f"{stopped_by}; {kept_in(self.folder.path, len(self.done))}") from error
            raise
        finally:
            self._unload()
            end = EndLine(
                finished_at=_now(), runs_planned=self.grid.runs_planned, runs_done=len(self.done), stopped_by=stopped_by
            )
            self.folder.append(end)

    def _turns(self, left: list[Turn], estimate: Estimate) -> str | None:
        for place, turn in enumerate(left):
            calibrations = self.grid.calibrations(wanted(turn.planned) - set(self.folder.rates))
            if self.grid.budget is not None:
                soonest = time.monotonic() - self.began + estimate.turn(turn.planned, calibrations=calibrations)
                if soonest > self.grid.budget:
                    sentence = (
                        f"{len(self.done)} of {counted(self.grid.runs_planned, 'run')} fitted into the"
                        f" {self.grid.budget:g} s that this profile has; the others were not started"
                    )
                    self.display.said(sentence)
                    return sentence
            remaining = estimate.left(left[place:], self.folder.rates) if estimate.is_known else None
            with self.display.run(turn, remaining) as progress:
                run = self._one(turn, estimate, progress)
            self.folder.append(run)
            self.done[turn.number] = run
            self.display.finished(turn, run, estimate.left(left[place + 1 :], self.folder.rates))
        return None

    def _one(self, turn: Turn, estimate: Estimate, progress: Progress) -> Run:
        """Calibrate if needed, run, and return the record: a void one if the run fails but its servers do not."""
        planned = turn.planned
        started_at = _now()
        if turn.round != self.loaded_for:
            self._unload()
        self.loaded_for = turn.round
        try:
            for cell_id in wanted(planned) - set(self.folder.rates):
                sales = self.grid.calibrations([cell_id])
                began = time.monotonic()
                rates = [self._calibrated(turn, progress) for _ in range(sales)]
                estimate.calibrated((time.monotonic() - began) / sales)
                self.folder.keep_rate(cell_id, median(rates))
            began = time.monotonic()
            run = self._measured(turn, progress)
            estimate.took(planned, time.monotonic() - began)
        except _Lost as error:
            cell = planned.at(self.folder.rates.get(_capacity_id(planned), 1.0))
            return lost_run(turn, cell, error, started_at=started_at)
        return run

    def _calibrated(self, turn: Turn, progress: Progress) -> float:
        planned = turn.planned
        cell = planned.capacity or planned.cell
        alone = replace(planned, cell=cell, percent=None, capacity=None)
        with self.servers.for_run(alone, cell) as run_servers:
            assignment = RunAssignment(
                cell=cell,
                is_calibration=True,
                seed=turn.seed,
                **asdict(run_servers),
                stock=cell.stock or CALIBRATION_STOCK,
                own=OWN.get(cell.strategy),
                seconds=self.grid.calibration,
                warm_up=min(planned.warm_up, self.grid.calibration / 4),
            )
            found = self._read_record(
                assignment,
                lambda phase, done, total: progress(f"calibration, {phase}", done, total),
                run_servers.is_alive,
            )
        return float(found["orders_per_s"])

    def _measured(self, turn: Turn, progress: Progress) -> Run:
        planned = turn.planned
        cell = planned.at(self.folder.rates.get(_capacity_id(planned), 1.0))
        with self.servers.for_run(planned, cell) as run_servers:
            assignment = RunAssignment(
                cell=cell,
                run=turn.number,
                round=turn.round,
                arm=turn.arm,
                sweeps=planned.sweeps,
                seed=turn.seed,
                **asdict(run_servers),
                stock=stock_of(planned, cell, turn.seed, calibrated=self.folder.rates, paces=self._paces(cell)),
                seconds=planned.seconds,
                warm_up=planned.warm_up,
                history=self.folder.history(turn.number),
                own=OWN.get(cell.strategy),
            )
            found = self._read_record(assignment, progress, run_servers.is_alive)
        return Run.model_validate(found).model_copy(update={"offered_percent": planned.percent})

    def _paces(self, cell: Cell) -> list[float]:
        return [run.pace for run in self.done.values() if run.cell_id == cell.cell_id and run.pace]

    def _read_record(
        self, assignment: RunAssignment, progress: Progress, is_alive: Callable[[], bool]
    ) -> dict[str, Any]:
        at_most = assignment.seconds_at_most
        if self.grid.budget is not None:
            at_most = min(at_most, max(1.0, self.began + self.grid.budget + OVERTIME - time.monotonic()))
        self.loader = self.loader or MeasuringProcess(MODULE)
        try:
            return self.loader.run(assignment, progress, seconds=at_most)
        except InvalidInput:
            raise
        except SegmentedError as error:
            self._unload()
            if is_alive():
                raise _Lost(str(error)) from error
            raise SegmentedError(
                f"a server died in the middle of {assignment.cell.cell_id} (run {assignment.run or 'to calibrate'})"
            ) from error

    def _unload(self) -> None:
        loader, self.loader = self.loader, None
        if loader is not None:
            loader.close()


class _Lost(SegmentedError):
    """A run ended without a record, although its servers are alive."""


def _capacity_id(planned: PlannedCell) -> str:
    return "" if planned.capacity is None else planned.capacity.cell_id


def _why(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, Ended):
        return f"stopped by {error}"
    return str(error) or type(error).__name__


class SessionView:
    """Prints one line per run; on a terminal also what is under way, and the estimated time left."""

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
    def run(self, turn: Turn, left: float | None) -> Iterator[Progress]:
        """Show the progress of a run; `left`: estimated seconds left, None before the first run. Nothing in a pipe."""
        remaining = "time left: known after the first run" if left is None else f"about {spoken(left)} left"
        of = f"{remaining}; run {turn.number} of {self.runs_planned}: {turn.planned.cell.cell_id}"
        with self.console.status(escape(of)) as status:

            def progress(phase: str, done: int, total: int) -> None:
                part = f" {100 * done / total:.0f} %" if total > 1 else ""
                status.update(escape(f"{of}: {phase}{part}"))

            yield progress

    def finished(self, turn: Turn, run: Run, left: float) -> None:
        """Print its line, and the estimated time left."""
        what = f"run {turn.number} of {self.runs_planned}, round {turn.round}: {run.cell_id}: {result_of(run)}"
        self.print(f"{what}; about {spoken(left)} left" if left else what)

    def said(self, sentence: str) -> None:
        """Print a message."""
        self.print(f"{sentence[:1].upper()}{sentence[1:]}.")

    def print(self, line: str) -> None:
        """Print a line without wrapping or highlighting."""
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)


def result_of(run: Run) -> str:
    """Return a run's result in a few words."""
    if run.orders_per_s is None:
        return f"void: {run.void[0]}"
    limit = f", limited by {' and '.join(run.saturated)}" if run.saturated else ""
    return f"{run.orders_per_s:,.1f} orders/s{limit}"


def show_results(found: ResultFile, console: Console) -> None:
    """Print each cell once: medians and extremes over its runs, and why runs are void."""
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in found.runs:
        cells.setdefault((run.cell_id, run.arm), []).append(run)
    rows = []
    for (cell_id, arm), runs in sorted(cells.items(), key=lambda item: (item[1][0].sweeps, item[0])):
        rates = [run.orders_per_s for run in runs if run.orders_per_s is not None]
        shown = [f"{value:,.1f}" for value in (min(rates), median(rates), max(rates))] if rates else ["-"] * 3
        rows.append([cell_id + (" (arm B)" if arm == "B" else ""), str(len(runs)), str(len(runs) - len(rates)), *shown])
    say(console, "Orders that hold stock, a second; each cell over its runs:")
    heads = ("cell", "runs", "void", "least", "median", "most")
    show_rows(console, heads, rows, "{}: {} runs, {} void; least {}, median {}, most {}".format)
    reasons = Counter(f"{run.cell_id}: {run.void[0]}" for run in found.runs if run.void)
    say(console, *(f"Void {count} x: {reason}" for reason, count in reasons.items()))


# --- the process that measures: gets assignments, and answers with records ---


class MeasuringProcess:
    """A process that imports everything needed once, which takes seconds, and forks for each assignment."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a process that runs `module`, which calls `fork_for_each_line` of `bench.engine.run_cell`.

        It has this process's environment unless another one is given.
        """
        with ExitStack() as stack:
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            self._process = start_child(("-m", module), errors=self._errors, environment=environment)
            stack.pop_all()
        self._complained = 0  # bytes of stderr from earlier assignments

    def run(
        self, assignment: RunAssignment, progress: Progress, *, seconds: float | None = None, subject: str = ""
    ) -> dict[str, Any]:
        """Run an assignment in a fork and return its record. Can be called repeatedly.

        Raises SegmentedError, which names the `subject`, if it fails or takes longer than `seconds`. After a timeout
        the process cannot be used again.
        """
        seconds = seconds or assignment.seconds_at_most
        overdue = threading.Timer(seconds, kill_group, [self._process])
        overdue.start()
        try:
            # on its stdin: URLs may have passwords, which a process list would show
            tell_child(self._process, assignment.model_dump_json())
            record, code = _read_record(self._process, progress)
        finally:
            overdue.cancel()
        begin, self._complained = self._complained, os.fstat(self._errors.fileno()).st_size
        if record is not None:
            return record
        begin = max(begin, self._complained - LAST_WORDS_MAX)
        errors = os.pread(self._errors.fileno(), LAST_WORDS_MAX, begin).decode(errors="replace")
        last_words = [line.strip() for line in errors.splitlines() if line.strip()][-1:]
        ended = f"not done in {seconds:g} s"
        if code is not None:
            ended = f"ended with code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        raise SegmentedError(
            f"measuring {subject or assignment.cell.cell_id} ended early: {' '.join(last_words) or ended}"
        )

    def close(self) -> None:
        """Close the process's stdin, so that it ends."""
        close_process(self._process)
        self._errors.close()


def _read_record(child: subprocess.Popen[str], progress: Progress) -> tuple[dict[str, Any] | None, int | None]:
    """Return the fork's record, if any, and its exit code; None if the parent process ended too."""
    record: dict[str, Any] | None = None
    code: int | None = None
    failure: SegmentedError | None = None
    for line in child.stdout or ():
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:  # a line truncated by a kill, or the empty line after it
            continue
        event = said.pop("event")
        if event == "left":
            code = said["code"]
            break
        if event == "failed":
            failure = (InvalidInput if said["is_input"] else SegmentedError)(said["reason"])
        elif event == "record":
            record = said["record"]
        else:
            progress(event, said["done"], said["total"])
    if failure is not None:
        raise failure
    return record, code

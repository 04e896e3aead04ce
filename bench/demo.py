"""`segmented demo`: one lock, segment locks, no lock and lock-free: a cell of the engine each, the same servers.

Before each sale a lone buyer orders from a pool of its own for a while. Its mean hold gives the bound and the stock, so
neither depends on the run that they judge. The options are validated once; each error names the option and its value.

The results are a bar for each rate, what they show in a few sentences, a table, and the file. While the demo runs, a
terminal shows a bar chart that grows with each sale, and a pipe gets lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import webbrowser
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.live import Live
from rich.text import Text

from bench import sizing
from bench.commands import DatabaseOption, JsonOption, UrlOption, finish
from bench.conditions import conditions, running
from bench.engine.cell import CALIBRATION_STOCK, Cell, RunAssignment
from bench.engine.percentiles import at_ms, decoded
from bench.engine.record import Run
from bench.engine.servers import require_single
from bench.engine.session import MeasuringProcess
from bench.results import LineDisplay, check_writable, described_conditions, say, show_rows
from bench.strategies import STRATEGIES
from segmented.cli.console import console_beside
from segmented.errors import InvalidInput, SegmentedError
from segmented.models import SEGMENT_COUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console

    from bench.conditions import Servers
    from bench.results import Display, Progress

ENDS_SECONDS: Final = 10.0


@contextmanager
def watch_page(url: str, *skus: str, every: float = 1.0) -> Iterator[str]:
    """Serve the page of these pools, or of all, on a free port; give its address. Raises InvalidInput if it fails."""
    command = [sys.executable, "-m", "segmented", "watch", *skus, "--web", "--port", "0", "--every", str(every)]
    environment = {**os.environ, "SEGMENTED_URL": url}  # no password on a command line
    run = subprocess.Popen(  # noqa: S603  # our own interpreter and modules
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        lines = iter(run.stdout or ())
        found = re.search(r"http://\S+", first := next(lines, ""))
        if found is None:
            raise InvalidInput(f"segmented watch: {first.strip()}")
        threading.Thread(target=list, args=(lines,), daemon=True).start()  # so that it never waits for a reader
        yield found[0]
    finally:
        run.terminate()
        try:
            run.wait(ENDS_SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()


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


SALE: Final = "sale"


class Story:
    """Says what each sale does before it begins, and draws the chart so far."""

    def __init__(self, console: Console) -> None:
        """Tell the story on `console`."""
        self._console = console
        self._runs: list[DemoRun] = []

    @contextmanager
    def page(self, url: str) -> Iterator[None]:
        """Serve the page that shows the pools while they sell; open it if there is a display. Only on a terminal."""
        with ExitStack() as stack:
            if self._console.is_terminal:
                with suppress(InvalidInput):  # such as without the extra `watch`: the demo needs no page
                    address = stack.enter_context(watch_page(url))
                    self._console.print(f"Watch it: {address}", highlight=False)
                    displays = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
                    if displays or sys.platform in {"darwin", "win32"}:
                        webbrowser.open(address)
            yield

    @contextmanager
    def strategy(self, name: str) -> Iterator[Progress]:
        """Follow one strategy."""
        self._console.print(f"{len(self._runs) + 1}/{len(STORIES)} {STORIES[name]}", highlight=False, soft_wrap=True)
        if not self._console.is_terminal:
            with LineDisplay(self._console).strategy(name) as progress:
                yield progress
            return
        with Live(console=self._console, transient=True, refresh_per_second=4) as live:
            began: list[float] = []

            def progress(phase: str, done: int, total: int) -> None:
                if phase == SALE and not began:
                    began.append(time.monotonic())
                seconds = time.monotonic() - began[0] if began else 0.0
                rate = f", {done / seconds:,.0f} orders/s" if done and seconds else ""
                sold = f"{done:,} of {total:,} units{rate}" if phase == SALE else phase
                live.update(Text("\n".join((*bars(self._runs), f"{name}: {sold}"))))

            yield progress

    def add(self, run: DemoRun) -> None:
        """Add a finished run to the chart."""
        self._runs.append(run)


NAME: Final = "demo"
MODULE: Final = "bench.engine.run_cell"
HOLD_MS_MAX: Final = 2_000.0
"""Well below the ten seconds of a segment's lease."""
BUYERS_MAX: Final = 1_000
SECONDS_MIN: Final = 1.0
SECONDS_MAX: Final = 600.0
LINE_SECONDS_MAX: Final = 120.0
"""Maximum seconds to serve all buyers that wait for one lock."""
ORDERS_MIN: Final = 20
"""Minimum number of orders that one lock must be able to sell in the given time."""


def measure_demo(
    options: DemoOptions,
    display: Display,
    told: Callable[[DemoRun], object] = lambda _: None,
    beside: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Results:
    """Measure the four strategies, each in a fresh process, on embedded servers unless others are named.

    Calls `told` with each run once it is finished. What `beside` returns for Redis's URL is entered during all sales.
    """
    runs: list[DemoRun] = []
    if options.url is not None:
        require_single(options.url)
    with (
        running(options.url, options.database, buyers=options.buyers) as servers,
        closing(MeasuringProcess(MODULE)) as measuring,
        beside(servers.url),
    ):
        shown = {name: getattr(options, name) for name in ("hold_ms", "buyers", "segments", "seconds")}
        shown |= {"embedded_redis": options.url is None, "embedded_database": options.database is None}
        found = conditions(servers) | {"options": shown}  # without URLs, which may contain passwords
        for name in STORIES:
            with display.strategy(name) as progress:
                run = _sold_out(options, name, servers, measuring, progress)
            told(run)
            runs.append(run)
    return Results(NAME, tuple(runs), found, is_verbose=options.is_verbose)


def cell_of(options: DemoOptions, name: str) -> Cell:
    """Return the cell of a strategy: the extra hold, then a real commit."""
    segments = options.segments if STRATEGIES[name].has_segments else 1
    return Cell(strategy=name, segments=segments, section="commit", hold_ms=options.hold_ms, buyers=options.buyers)


def lone_assignment(cell: Cell, servers: Servers) -> RunAssignment:
    """Return the sale of a lone buyer, which nobody else delays: it ends by time, and gives the hold of the bound."""
    return RunAssignment(
        cell=cell.model_copy(update={"buyers": 1}),
        is_calibration=True,
        url=servers.url,
        meter_url=servers.url,
        database=servers.database,
        stock=CALIBRATION_STOCK,
        seconds=sizing.calibration(cell.hold_ms / MILLISECONDS),
        warm_up=0.0,
    )


def _sold_out(
    options: DemoOptions, name: str, servers: Servers, measuring: MeasuringProcess, progress: Progress
) -> DemoRun:
    """Let a lone buyer order, then sell a stock that lasts for the planned seconds at the bound."""
    cell = cell_of(options, name)

    def run(assignment: RunAssignment, told: Progress) -> dict[str, Any]:
        return measuring.run(assignment, told, subject=name)

    alone = lone_assignment(cell, servers)
    lone_hold_ms = run(alone, lambda *_: progress("calibration", 0, 1))["hold_ms"]
    if lone_hold_ms is None:
        message = f"{name}: a lone buyer got no order in {alone.seconds:g} s, so there is no bound to measure against"
        raise SegmentedError(message)
    lanes = cell.buyers if name == LOCK_FREE else min(cell.segments, cell.buyers)
    bound = sizing.bound_per_s(lanes, lone_hold_ms / MILLISECONDS)
    whole = alone.model_copy(
        update={
            "cell": cell,
            "is_calibration": False,
            "stock": max(sizing.STOCK_MIN, ceil(bound * options.seconds)),
            "seconds": options.seconds,
            "warm_up": sizing.warm_up(options.seconds),
        }
    )
    return DemoRun(Run.model_validate(run(whole, progress)), lone_hold_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of a measurement. `url` and `database` replace the embedded servers."""

    hold_ms: float = 20.0
    buyers: int = 64
    segments: int = 20
    seconds: float = 15.0
    url: str | None = None
    database: str | None = None
    is_verbose: bool = False

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        _within("--hold", self.hold_ms, 0, HOLD_MS_MAX, "ms")
        _within("--buyers", self.buyers, 1, BUYERS_MAX)
        _within("--segments", self.segments, 1, SEGMENT_COUNT_MAX)
        _within("--seconds", self.seconds, SECONDS_MIN, SECONDS_MAX, "s")
        if self.hold_ms * ORDERS_MIN > self.seconds * 1_000:
            few = f"fewer than {ORDERS_MIN} orders in --seconds {self.seconds:g}: measure longer, or hold for less"
            raise InvalidInput(f"--hold {self.hold_ms:g} leaves one lock {few}")
        line_seconds = self.buyers * self.hold_ms / 1_000
        if line_seconds > LINE_SECONDS_MAX:
            in_line = f"--buyers {self.buyers} in line for one lock with --hold {self.hold_ms:g} would wait"
            raise InvalidInput(f"{in_line} {line_seconds:,.0f} s; at most {LINE_SECONDS_MAX:g} s can be measured")


def _within(option: str, value: float, low: float, high: float, unit: str = "") -> None:
    if not low <= value <= high:  # also refuses NaN
        raise InvalidInput(f"{option} {value:g} must be between {low:,g} and {high:,g}{f' {unit}' if unit else ''}")


def demo(
    *,
    json: JsonOption = None,
    hold: Annotated[
        float, typer.Option(help="Extra time inside the critical section, milliseconds.", metavar="MS")
    ] = 20.0,
    buyers: Annotated[int, typer.Option(help="Number of concurrent buyers.", metavar="N")] = 64,
    segments: Annotated[int, typer.Option(help="Number of segments, each with its own lock.", metavar="K")] = 20,
    seconds: Annotated[float, typer.Option(help="Duration of each sale at its bound.", metavar="S")] = 15.0,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print all figures.")] = False,
    url: UrlOption = None,
    database: DatabaseOption = None,
) -> None:
    """Compare segment locks with no lock, one lock, and a lock-free script."""
    options = DemoOptions(
        hold_ms=hold, buyers=buyers, segments=segments, seconds=seconds, url=url, database=database, is_verbose=verbose
    )
    check_writable(json)
    console = console_beside(json)
    story = Story(console)
    results = measure_demo(options, story, story.add, story.page)
    finish(results, console, json)

"""Measures segment locks, one lock, no lock and lock-free: a cell of the engine each, one run, the same servers.

Before each sale a lone buyer orders from a pool of its own for a while. Its mean hold gives the bound and the stock, so
neither depends on the run that they judge.

The options are validated once. Each error names the option and its value.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench import sizing
from bench.children import MeasuringProcess, MeasuringTask
from bench.conditions import conditions, running
from bench.demo.results import LOCK_FREE, MILLISECONDS, STORIES, DemoRun, Results
from bench.engine.cell import CALIBRATION_STOCK, Cell, RunAssignment
from bench.engine.record import Run
from bench.engine.servers import require_single
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput, SegmentedError
from segmented.models import SEGMENT_COUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from bench.conditions import Servers
    from bench.display import Display, Progress

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
        found = conditions(servers) | {"options": _shown(options)}
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
        return measuring.run(MeasuringTask(assignment.model_dump_json(), name, assignment.seconds_at_most), told)

    alone = lone_assignment(cell, servers)
    lone_hold_ms = run(alone, lambda *_: progress("calibration", 0, 1))["hold_ms"]
    if lone_hold_ms is None:
        message = f"{name}: a lone buyer got no order in {alone.seconds:g} s, so there is no bound to measure against"
        raise SegmentedError(message)
    lanes = cell.buyers if name == LOCK_FREE else min(cell.segments, cell.buyers)
    whole = alone.model_copy(
        update={
            "cell": cell,
            "is_calibration": False,
            "stock": sizing.stock_for(sizing.bound_per_s(lanes, lone_hold_ms / MILLISECONDS), options.seconds),
            "seconds": options.seconds,
            "warm_up": sizing.warm_up(options.seconds),
        }
    )
    return DemoRun(Run.model_validate(run(whole, progress)), lone_hold_ms)


def _shown(options: DemoOptions) -> dict[str, Any]:
    """Return the options without URLs, which may contain passwords."""
    return {
        "hold_ms": options.hold_ms,
        "buyers": options.buyers,
        "segments": options.segments,
        "seconds": options.seconds,
        "embedded_redis": options.url is None,
        "embedded_database": options.database is None,
    }


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
            at_most = (
                f"--hold {self.hold_ms:g} leaves one lock fewer than {ORDERS_MIN} orders in --seconds {self.seconds:g}"
            )
            message = f"{at_most}: measure longer, or hold for less"
            raise InvalidInput(message)
        line_seconds = self.buyers * self.hold_ms / 1_000
        if line_seconds > LINE_SECONDS_MAX:
            in_line = f"--buyers {self.buyers} in line for one lock with --hold {self.hold_ms:g} would wait"
            message = f"{in_line} {line_seconds:,.0f} s; at most {LINE_SECONDS_MAX:g} s can be measured"
            raise InvalidInput(message)


def _within(option: str, value: float, low: float, high: float, unit: str = "") -> None:
    if not low <= value <= high:  # also refuses NaN
        message = f"{option} {value:g} must be between {low:,g} and {high:,g}{f' {unit}' if unit else ''}"
        raise InvalidInput(message)

"""The benchmark `demo`: segment locks, one lock, no lock and lock-free, one sale each.

The options are validated once. Each error names the option and its value.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from bench.assignment import Assignment
from bench.children import MeasuringProcess, MeasuringTask
from bench.conditions import conditions, running
from bench.findings import ORDER, findings, remarks
from bench.record import RunRecord
from bench.results import Results
from segmented.errors import InvalidInput
from segmented.models import SEGMENT_COUNT_MAX

if TYPE_CHECKING:
    from bench.display import Display

NAME: Final = "demo"
HOLD_MS_MAX: Final = 2_000.0
"""Well below the ten seconds of a segment's lease."""
BUYERS_MAX: Final = 1_000
SECONDS_MIN: Final = 1.0
SECONDS_MAX: Final = 600.0
LINE_SECONDS_MAX: Final = 120.0
"""Maximum seconds to serve all buyers that wait for one lock."""
ORDERS_MIN: Final = 20
"""Minimum number of orders that one lock must be able to sell in the given time."""


def measure_demo(options: DemoOptions, display: Display) -> Results:
    """Measure the four strategies, each in a fresh process, on embedded servers unless others are named."""
    runs: list[RunRecord] = []
    with (
        running(options.url, options.database, buyers=options.buyers) as servers,
        closing(MeasuringProcess("bench.run_strategy")) as measuring,
    ):
        found = conditions(servers) | {"options": _shown(options)}
        sale = f"{NAME}-{uuid4().hex[:8]}"
        for name in ORDER:
            assignment = Assignment(
                strategy=name,
                sku=f"{sale}-{name}",
                url=servers.url,
                database=servers.database,
                segments=options.segments,
                buyers=options.buyers,
                extra_hold=options.hold_ms / 1_000,
                seconds=options.seconds,
            )
            with display.strategy(name) as progress:
                asked = MeasuringTask(assignment.as_json(), name, assignment.seconds_at_most)
                record = RunRecord.from_json(measuring.run(asked, progress))
            display.finished(record)
            runs.append(record)
    cores = found["cores"]
    return Results(NAME, tuple(runs), found, findings(runs, cores), remarks(runs, cores))


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

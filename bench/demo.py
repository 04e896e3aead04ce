"""The benchmark `demo`: segment locks, one lock, no lock and lock-free, one sale each."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from bench.assignment import Assignment
from bench.children import MeasuringProcess, MeasuringTask
from bench.conditions import conditions
from bench.findings import ORDER, findings, remarks
from bench.record import RunRecord
from bench.results import Results
from bench.servers import running

if TYPE_CHECKING:
    from bench.display import Display
    from bench.options import DemoOptions

NAME: Final = "demo"


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

"""`segmented bench celery`: one lock against K segments, with the slow step in Celery workers.

Each message has one order. A worker takes its units under the lock of a segment, and holds the lock while the step
sleeps; with PostgreSQL the order's transaction commits under the lock too. So at most min(K, threads) orders are in the
slow step, and the bound is that number divided by the configured hold. Celery's own ceiling, empty tasks of the same
workers, is measured in every round.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bench.conditions import server_conditions
from bench.cpu import busy_seconds
from bench.locks.figures import Figure, LockResults
from bench.workers.bursts import Burst, empty_burst, load, own_and_children_seconds, work_off
from bench.workers.context import Sizes, faults, started_context
from bench.workers.processes import PROCESSES

if TYPE_CHECKING:
    from bench.display import Display
    from bench.workers.context import BenchContext

NAME: Final = "celery"
THREADS: Final = 32
SLOTS: Final = PROCESSES * THREADS
SEGMENT_COUNTS: Final = (1, 4, 20, 64)
ASKED_OF: Final = 20
"""The segment count that has bounds."""
HOLDS_MS: Final = (20, 50)
RATIO_MIN: Final = 15.0
SHARE_MIN: Final = 0.9
WARM_UP: Final = 64
INTERVAL: Final = {"interval": "least and most of the rounds"}
WORKERS: Final = {
    "SEGMENTED_POOL": "threads",
    "SEGMENTED_CONCURRENCY": str(THREADS),
    "SEGMENTED_STEP": "bench.workers.app:hold",
    "SEGMENTED_SEGMENT_TIMEOUT": "15",
}
"""An order waits for its segment in its worker; without a sweep, one that was put off would not come again."""


@dataclass(frozen=True, slots=True)
class LaneSizes:
    """How much is measured."""

    rounds: int = 5
    seconds: float = 3.0
    """Seconds that a burst would take at its bound."""
    empty: int = 4_000
    """Empty tasks of a round."""

    @classmethod
    def for_options(cls, *, quick: bool, rounds: int | None) -> LaneSizes:
        """Return the sizes for command-line options. Raises InvalidInput."""
        sizes = cls(rounds=2, seconds=1.0, empty=1_000) if quick else cls()
        return replace(sizes, rounds=Sizes.for_options(quick=quick, rounds=rounds or sizes.rounds).rounds)


@dataclass(frozen=True, slots=True)
class Lane:
    """A number of segments, a hold, and whether the transaction is under the lock too."""

    segments: int
    hold_ms: int
    is_stored: bool

    @property
    def name(self) -> str:
        """Name in the figures."""
        locks = "one lock" if self.segments == 1 else f"{self.segments} segments"
        return f"{locks}, hold {self.hold_ms} ms{', PostgreSQL' if self.is_stored else ''}"

    @property
    def bound(self) -> float:
        """The most orders a second that the configured hold allows."""
        return min(self.segments, SLOTS) / (self.hold_ms / 1000)


EMPTY: Final = "empty task"
LANES: Final = tuple(
    Lane(segments, hold, stored) for hold in HOLDS_MS for stored in (False, True) for segments in SEGMENT_COUNTS
)


def measure_lanes(
    url: str | None, database: str | None, display: Display, sizes: LaneSizes | None = None
) -> LockResults:
    """Measure on embedded servers, unless others are named: a stock server must be empty, and is emptied at the end."""
    sizes = sizes or LaneSizes()
    with (
        display.strategy(NAME) as progress,
        started_context(url, database, Sizes(rounds=sizes.rounds), progress, WORKERS) as context,
    ):
        placement = f"{PROCESSES} workers of {THREADS} threads, shop and servers share the cores"
        found = {**server_conditions(context.url, "celery", "kombu"), "placement": placement}
        bursts, empty, others = measure_rounds(context, sizes)
        broken = dict(context.broken)
    figures = (
        Figure("parts whose orders were not accounted for", len(broken), "", at_most=0, is_promise=True),
        *lane_figures(bursts, empty, broken),
        Figure("cores that others used meanwhile", max(0.0, others), ""),
    )
    remarks = tuple(f"No figures for {part}: {fault}." for part, fault in broken.items())
    return LockResults(figures, found, remarks, benchmark=NAME)


def measure_rounds(context: BenchContext, sizes: LaneSizes) -> tuple[dict[Lane, list[Burst]], list[Burst], float]:
    """Run every lane and the empty task once a round, in random order. Return the bursts, and the cores of others."""
    shuffle = random.Random(1).shuffle
    context.progress("first messages", 0, 1)
    empty_burst(context, WARM_UP)
    _burst(context, LANES[-1], WARM_UP)
    found: dict[Lane, list[Burst]] = {lane: [] for lane in LANES}
    empty: list[Burst] = []
    others: list[float] = []
    for number in range(sizes.rounds):
        context.progress("rounds", number, sizes.rounds)
        order: list[Lane | None] = [*LANES, None]
        shuffle(order)
        for lane in order:
            busy, own, at = busy_seconds(), own_and_children_seconds(), time.monotonic()
            if lane is None:
                empty.append(empty_burst(context, sizes.empty))
            else:
                found[lane].append(_burst(context, lane, max(WARM_UP, round(lane.bound * sizes.seconds))))
            others.append((busy_seconds() - busy - (own_and_children_seconds() - own)) / (time.monotonic() - at))
    return found, empty, sum(others) / len(others)


def _burst(context: BenchContext, lane: Lane, count: int) -> Burst:
    with context.pool("in the worker", gated=lane.is_stored, segments=lane.segments) as pool:
        sent = load(context, pool, [f"{lane.hold_ms}-{index}" for index in range(count)], 1)
        burst = work_off(context, count, sent)
        if fault := faults(pool, sent, context.gate if lane.is_stored else None):
            context.broken.setdefault(lane.name, fault)
    return burst


def lane_figures(found: dict[Lane, list[Burst]], empty: list[Burst], broken: dict[str, str]) -> list[Figure]:
    """Compare each number of segments with one lock, and with its bound, round by round."""
    figures = []
    kept = [lane for lane in LANES if lane.name not in broken]
    for lane in kept:
        one = replace(lane, segments=1)
        if lane is not one and lane.segments > 1 and one in kept:
            ratios = [many.rate / single.rate for many, single in zip(found[lane], found[one], strict=True)]
            is_asked = (lane.segments, lane.hold_ms, lane.is_stored) == (ASKED_OF, 50, False)
            figures.append(_median(f"{lane.name} / one lock", ratios, "", RATIO_MIN if is_asked else None))
    for lane in kept:
        if not lane.is_stored:
            shares = [
                burst.rate / min(lane.bound, ceiling.rate) for burst, ceiling in zip(found[lane], empty, strict=True)
            ]
            is_asked = (lane.segments, lane.hold_ms) == (ASKED_OF, 20)
            name = f"{lane.name} / the lower of {lane.bound:g}/s and the ceiling"
            figures.append(_median(name, shares, "", SHARE_MIN if is_asked else None))
    figures.append(_median("Celery's ceiling: empty tasks", [burst.rate for burst in empty], "/s"))
    figures += [_median(lane.name, [burst.rate for burst in found[lane]], "/s") for lane in kept]
    return figures


def _median(name: str, found: list[float], unit: str, at_least: float | None = None) -> Figure:
    return Figure(name, statistics.median(found), unit, min(found), max(found), at_least=at_least, detail=INTERVAL)

"""What `Once` adds to a task that does nothing: ratios of bursts of one round, and round trips counted by the server.

One worker runs all kinds in random order in each round, so that other load of the machine affects all of them equally.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING, Final

import psutil
import redis

from bench.cpu import busy_seconds, own_seconds
from bench.figures import Figure, of_rounds
from bench.micro.dedup.tasks import EXACTLY_ONCE, ONCE, PLAIN, PLAIN_EFFECT
from bench.micro.dedup.worker_driver import running_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.micro.dedup.context import BenchContext
    from bench.micro.dedup.worker_driver import Burst, WorkerDriver

    Bursts = Mapping[str, Sequence[Burst]]

BESIDE: Final[dict[str, str]] = {**dict.fromkeys(ONCE, PLAIN), EXACTLY_ONCE: PLAIN_EFFECT}
"""The plain task with which a level is compared: one that does the same."""
KINDS: Final = (PLAIN, PLAIN_EFFECT, *BESIDE)
WARM_UP: Final = 30
TRIP_MAX: Final = 0.15
"""Maximum cost of a round trip that `Once` adds, as a share of the plain task's time."""
TRIPS_MAX: Final = 2.0


def measure_trivial(context: BenchContext) -> list[Figure]:
    """Run bursts of every kind alternately, a few hundred tasks each."""
    sizes = context.sizes
    shuffle = random.Random(1).shuffle
    found: dict[str, list[Burst]] = {kind: [] for kind in KINDS}
    with running_worker(context.url) as driver, redis.Redis.from_url(context.url) as client:
        for kind in KINDS:
            driver.burst(kind, [f"warm-{index}" for index in range(WARM_UP)])
        other_load = OtherLoad(client, driver)
        for number in range(sizes.rounds):
            context.progress("trivial tasks", number, sizes.rounds)
            order = list(KINDS)
            shuffle(order)
            for kind in order:
                found[kind].append(driver.burst(kind, [f"{number}-{index}" for index in range(sizes.tasks)]))
        cores = other_load.cores()
    return [*figures_of(found), Figure("cores that others used meanwhile", cores, "")]


def figures_of(found: Bursts) -> list[Figure]:
    """Compare the bursts of each round with the plain bursts of the same round."""
    figures = [figure for kind in BESIDE for figure in _of_worker(found, kind)]
    figures += [figure for kind in BESIDE for figure in _of_publisher(found, kind)]
    bare = [effect.worked / plain.worked - 1 for effect, plain in zip(found[PLAIN_EFFECT], found[PLAIN], strict=True)]
    figures.append(of_rounds("for comparison: added by one bare round trip of redis-py, an INCRBY by script", bare, ""))
    return figures + [
        of_rounds(f"{kind}: a task in the worker", [burst.worked for burst in found[kind]], "us") for kind in KINDS
    ]


class OtherLoad:
    """CPU time used by neither this process, nor the worker, nor the server."""

    def __init__(self, client: redis.Redis, driver: WorkerDriver) -> None:
        """Start counting."""
        self._client = client
        self._own = (psutil.Process(), psutil.Process(driver.pid))
        self._began = self._read()

    def cores(self) -> float:
        """Return the mean number of cores used so far."""
        at, used = self._read()
        return max(0.0, (used - self._began[1]) / (at - self._began[0]))

    def _read(self) -> tuple[float, float]:
        server = self._client.info("cpu")
        ours = float(server["used_cpu_user"]) + float(server["used_cpu_sys"]) + sum(map(own_seconds, self._own))
        return time.monotonic(), busy_seconds() - ours


def _of_worker(found: Bursts, kind: str) -> list[Figure]:
    plain = BESIDE[kind]
    own = statistics.median(burst.worked_trips for burst in found[plain])
    trips = statistics.median(burst.worked_trips for burst in found[kind])
    added = trips - own
    times = _ratios(found, kind, lambda burst: burst.worked)
    cpu = _ratios(found, kind, lambda burst: burst.worked_cpu)
    each = [(ratio - 1) / added for ratio in times]
    return [
        of_rounds(f"{kind} / {plain}: time of a task in the worker", times, ""),
        of_rounds(f"{kind} / {plain}: CPU of the worker", cpu, ""),
        Figure(f"{kind}: round trips of the worker", trips, "", at_most=TRIPS_MAX, is_promise=True),
        of_rounds(f"{kind}: added by each of {added:g} more round trips", each, "", at_most=TRIP_MAX),
        of_rounds(f"{kind}: server time of its scripts", [burst.server for burst in found[kind]], "us"),
    ]


def _of_publisher(found: Bursts, kind: str) -> list[Figure]:
    trips = statistics.median(burst.published_trips for burst in found[kind])
    times = _ratios(found, kind, lambda burst: burst.published)
    figures = [
        of_rounds(f"{kind} / {BESIDE[kind]}: time of apply_async", times, ""),
        Figure(f"{kind}: round trips of apply_async", trips, "", at_most=TRIPS_MAX, is_promise=True),
    ]
    if trips:
        each = [(ratio - 1) / trips for ratio in times]
        figures.append(of_rounds(f"{kind}: added to apply_async by each round trip", each, "", at_most=TRIP_MAX))
    return figures


def _ratios(found: Bursts, kind: str, part: Callable[[Burst], float]) -> list[float]:
    return [part(ours) / part(plain) for ours, plain in zip(found[kind], found[BESIDE[kind]], strict=True)]

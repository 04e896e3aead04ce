"""Uncontended cost: each subject in its own process, in random order, one short burst per round; ratios by round.

Only one subject runs at a time, and each ratio compares two bursts of the same round, so that other load affects both
equally. The interval is a bootstrap over the rounds.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

import numpy as np
import redis

from bench.children import close_process, start_child, tell_child
from bench.environments import ROOT
from bench.figures import Figure
from bench.micro.locks.cycles import CYCLES, OURS, OURS_ASYNC, PEERS, RAW, REDIS_PY, REDIS_PY_ASYNC
from bench.sizing import shuffled_rounds
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.display import Progress

BURST: Final = 200
ROUNDS: Final = 30
RESAMPLES: Final = 2_000
RATIO_MAX: Final = 0.75
ROUND_TRIPS_MAX: Final = 2
STDERR: Final = 2
"""The descriptor of this process's error output, which a subject writes to."""


class Subject:
    """A worker process that waits for requests."""

    def __init__(self, name: str, python: str, url: str) -> None:
        """Start the process, and wait until it is warm."""
        self.name = name
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        arguments = ("-m", "bench.micro.locks.cycles", name, url)
        self._process = start_child(arguments, errors=STDERR, environment=environment, python=python)
        said = self._read()
        if said != "ready":
            self.close()
            message = f"the subject {name!r} did not start; it said {said!r}"
            raise SegmentedError(message)

    def seconds(self, count: int) -> float:
        """Run `count` cycles, and return their seconds."""
        tell_child(self._process, f"{count}")
        return float(self._read() or "nan")

    def _read(self) -> str:
        stdout = self._process.stdout
        return stdout.readline().strip() if stdout is not None else ""

    def close(self) -> None:
        """End it."""
        close_process(self._process)


def measure_uncontended(
    url: str,
    pythons: Mapping[str, Path],
    progress: Progress,
    *,
    rounds: int = ROUNDS,
    seed: int = 1,
) -> list[Figure]:
    """Measure every subject with an environment; `pythons` has the interpreters of the competitors."""
    names = [name for name in CYCLES if name not in PEERS or PEERS[name] in pythons]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as stack:
        subjects: list[Subject] = []
        for name in names:
            python = str(pythons[PEERS[name]]) if name in PEERS else sys.executable
            subjects.append(stack.enter_context(closing(Subject(name, python, url))))
        for number, subject in shuffled_rounds(subjects, rounds, seed=seed):
            progress("uncontended cycles", number, rounds)
            seconds[subject.name].append(subject.seconds(BURST) / BURST)
    times = {name: np.array(found) for name, found in seconds.items()}
    return [*_ratios(times), *_costs(times), _round_trips(url)]


def _ratios(times: Mapping[str, NDArray[np.float64]]) -> list[Figure]:
    figures = [_ratio(times, OURS, REDIS_PY, at_most=RATIO_MAX)]
    figures += [_ratio(times, OURS, name, at_most=1.0) for name in times if name in PEERS]
    figures.append(_ratio(times, OURS_ASYNC, REDIS_PY_ASYNC, at_most=RATIO_MAX))
    figures.append(_ratio(times, OURS, RAW))
    return figures


def _ratio(times: Mapping[str, NDArray[np.float64]], ours: str, theirs: str, at_most: float | None = None) -> Figure:
    ratios = times[ours] / times[theirs]
    low, high = interval(ratios)
    return Figure(f"{ours} / {theirs}", float(np.median(ratios)), "", low, high, at_most)


def _costs(times: Mapping[str, NDArray[np.float64]]) -> list[Figure]:
    figures = []
    for name, found in times.items():
        low, high = interval(found * 1e6)
        figures.append(Figure(f"{name}: acquire and release", float(np.median(found) * 1e6), "us", low, high))
    return figures


def interval(values: NDArray[np.float64], *, seed: int = 1) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the median."""
    drawn = np.random.default_rng(seed).choice(values, (RESAMPLES, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def _round_trips(url: str) -> Figure:
    """Count the round trips of one cycle on one connection: reads of the server's event loop."""
    run = CYCLES[OURS](url)
    with redis.Redis.from_url(url) as server:
        before = int(server.info("stats")["total_reads_processed"])
        cost_of_looking = int(server.info("stats")["total_reads_processed"]) - before
        run(BURST)
        after = int(server.info("stats")["total_reads_processed"])
    trips = (after - before - 2 * cost_of_looking) / BURST
    return Figure("round trips a cycle", trips, "", at_most=ROUND_TRIPS_MAX, is_promise=True)

"""The whole benchmark `locks`: uncontended, contended, and renewal, on one server.

Uncontended: each subject in its own process, in random order, one short burst per round. Only one subject runs at a
time, and each ratio compares two bursts of the same round, so that other load affects both equally. The interval is a
bootstrap over the rounds.

Contended: ten waiters behind one holder, their commands while parked, and how fast they are served. Beside the delay
stands the machine's floor, measured in the same rounds: ten threads that only wake each other, each after one round
trip of a bare socket. A hand-over of a lock between processes cannot do with less.

Renewal: ten thousand held leases of 30 s, renewed by one scheduler: the share of a core that this takes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import redis
from redis.utils import HIREDIS_AVAILABLE

from bench.analysis.intervals import median_of
from bench.children import close_process, start_child, tell_child
from bench.conditions import server_conditions
from bench.environments import ROOT, Environment, interpreter_of, is_made
from bench.figures import Figure, FigureResults, of_rounds
from bench.micro.locks.cycles import CYCLES, OURS, OURS_ASYNC, PEERS, RAW, REDIS_PY, REDIS_PY_ASYNC, BareSocket
from bench.sizing import shuffled_rounds
from segmented import Lease, Lock, RedisStore
from segmented.errors import SegmentedError
from segmented.locks.lease_state import Renewal
from segmented.locks.lock import LockClaim
from segmented.models import Acquired
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.results import Display, Progress

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
            raise SegmentedError(f"the subject {name!r} did not start; it said {said!r}")

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
    url: str, pythons: Mapping[str, Path], progress: Progress, *, rounds: int = ROUNDS, seed: int = 1
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
    pairs: list[tuple[str, str, float | None]] = [
        (OURS, REDIS_PY, RATIO_MAX),
        *((OURS, name, 1.0) for name in times if name in PEERS),
        (OURS_ASYNC, REDIS_PY_ASYNC, RATIO_MAX),
        (OURS, RAW, None),
    ]
    return [
        *(_figure(f"{ours} / {other}", times[ours] / times[other], "", at_most) for ours, other, at_most in pairs),
        *(_figure(f"{name}: acquire and release", found * 1e6, "us") for name, found in times.items()),
        _round_trips(url),
    ]


def _figure(name: str, rounds: NDArray[np.float64], unit: str, at_most: float | None = None) -> Figure:
    return Figure(name, float(np.median(rounds)), unit, *interval(rounds), at_most)


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


# --- contended ---

WAITERS: Final = 10
PARKED_SECONDS: Final = 10.0
HOLD_SECONDS: Final = 0.005
QUIET_SECONDS: Final = 0.3
PARK_SECONDS_MAX: Final = 60.0
WAITER_ROUNDS: Final = 15
PARKED_PER_S_MAX: Final = 0.2
"""The first waiter of the process asks every 0.8 s whether the lock is gone, and its listener pings every 3 s."""
DELAY_MS_MAX: Final = 5.0
FLOORS_MAX: Final = 1.5
"""The delay may also be so many times the floor, where that is more."""
COMMANDS_MAX: Final = 3.0
RELEASE_COMMANDS: Final = 2
"""Commands of the first holder, which is not one of the ten: compare-and-delete, and the message."""
CONTENDED: Final = "contended"


def measure_contended(url: str, progress: Progress) -> list[Figure]:
    """Park ten waiters, count, release, and time until the last of them was served."""
    with RedisStore.from_url(url) as store, redis.Redis.from_url(url) as server:
        progress("ten waiters parked", 0, WAITER_ROUNDS + 1)
        delays: list[float] = []
        floors: list[float] = []
        commands: list[float] = []
        parked = 0.0
        for number in range(WAITER_ROUNDS + 1):
            is_first = number == 0
            progress("ten waiters served", number, WAITER_ROUNDS + 1)
            found = _round(store, server, park_seconds=PARKED_SECONDS if is_first else 0.1)
            if is_first:
                parked = found["parked_per_s"] / WAITERS
                continue
            delays.append(found["delay_ms"])
            floors.append(_floor_ms(url))
            commands.append(found["commands"] / WAITERS)
    floor = sorted(floors)[len(floors) // 2]
    bound = max(DELAY_MS_MAX, FLOORS_MAX * floor)
    return [
        Figure("parked waiter: commands/s", parked, "", at_most=PARKED_PER_S_MAX, is_promise=True),
        _median("ten waiters: last served after release and the holds", delays, bound),
        _median("its floor: ten threads that wake each other after a round trip each", floors),
        Figure("commands an acquisition", max(commands), "", at_most=COMMANDS_MAX, is_promise=True),
    ]


def _median(name: str, rounds: list[float], at_most: float | None = None) -> Figure:
    """Return the median of the rounds with its interval; of few rounds that is the least and the most."""
    found = median_of(rounds)
    if found.low is None:
        return of_rounds(name, rounds, "ms", at_most=at_most)
    detail = {"interval": "95 % of the median, by order statistics"}
    return Figure(name, found.value, "ms", found.low, found.high, at_most, detail=detail)


def _floor_ms(url: str) -> float:
    """Return the milliseconds that ten threads need to wake each other, holds subtracted: see the module."""
    turns = [threading.Event() for _ in range(WAITERS + 1)]
    holds: list[float] = []
    with closing(BareSocket(url)) as line:

        def wait_and_hold(place: int) -> None:
            turns[place].wait(60)
            began = time.perf_counter()
            time.sleep(HOLD_SECONDS)
            holds.append(time.perf_counter() - began)
            line.ask("SET", f"{NAME}-floor", str(place), "PX", "60000")
            turns[place + 1].set()

        threads = [threading.Thread(target=wait_and_hold, args=(place,)) for place in range(WAITERS)]
        for thread in threads:
            thread.start()
        began = time.perf_counter()
        line.ask("SET", f"{NAME}-floor", "first", "PX", "60000")
        turns[0].set()
        turns[WAITERS].wait(60)
        took = time.perf_counter() - began
        for thread in threads:
            thread.join()
    return (took - sum(holds)) * 1_000


def _round(store: RedisStore, server: redis.Redis, *, park_seconds: float) -> dict[str, Any]:
    lock = Lock(store, CONTENDED, ttl=60)
    held = lock.acquire(timeout=5)
    holds: list[float] = []

    def wait_and_hold() -> None:
        with lock.acquire(timeout=60):
            began = time.perf_counter()
            time.sleep(HOLD_SECONDS)
            holds.append(time.perf_counter() - began)

    waiters = [threading.Thread(target=wait_and_hold) for _ in range(WAITERS)]
    for waiter in waiters:
        waiter.start()
    _let_them_park(server)
    server.config_resetstat()
    began = time.perf_counter()
    time.sleep(park_seconds)
    parked, parked_seconds = _commands(server), time.perf_counter() - began
    began = time.perf_counter()
    held.release()
    for waiter in waiters:
        waiter.join()
    took = time.perf_counter() - began
    commands = _commands(server) - parked - RELEASE_COMMANDS
    return {"parked_per_s": parked / parked_seconds, "delay_ms": (took - sum(holds)) * 1_000, "commands": commands}


def _let_them_park(server: redis.Redis) -> None:
    """Wait until nobody has sent a command for a while; the first waiter sends one every 0.8 s."""
    until = time.monotonic() + PARK_SECONDS_MAX
    sent = -1
    while sent != (sent := _commands(server)) and time.monotonic() < until:
        time.sleep(QUIET_SECONDS)


def _commands(server: redis.Redis) -> int:
    """Count the commands that clients sent, without those inside scripts."""
    found = server.info("commandstats")
    return sum(stats["calls"] for name, stats in found.items() if name.removeprefix("cmdstat_") in _SENT)


_SENT: Final = ("evalsha", "eval", "delifeq", "delex", "subscribe", "unsubscribe", "ping", "publish")
"""All commands that a store sends for a lock. A release by script also counts its PUBLISH, so the count is complete.

Those of the measurement itself and of connecting do not count."""


# --- the whole, and renewal ---

NAME: Final = "locks"
REQUIREMENTS: Final = ROOT / "tests" / "conformance" / "locks"
"""Folder of the pinned requirements of other libraries."""
LEASES: Final = 10_000
TTL_MS: Final = 30_000
WATCHED_SECONDS: Final = 30.0
"""Seconds of the measurement: three renewals of every lease."""
CORE_MAX: Final = 0.05


def measure_locks(
    url: str | None, display: Display, *, is_quick: bool = False, rounds: int | None = None
) -> FigureResults:
    """Measure on an embedded server, unless another is named, which no other program may use.

    `is_quick` leaves out libraries whose environments do not exist yet, and the renewal of 10,000 leases.
    """
    with ExitStack() as stack:
        if url is None:
            url = stack.enter_context(ValkeyServer.start()).url
        found = server_conditions(url)
        with display.strategy(NAME) as progress:
            pythons = _pythons(progress, only_there=is_quick)
            figures = (
                *measure_uncontended(url, pythons, progress, rounds=rounds or ROUNDS),
                *measure_contended(url, progress),
                *(() if is_quick else measure_renewal(url, progress)),
            )
    why = "are not made yet" if is_quick else "could not be made"
    parser = "hiredis" if HIREDIS_AVAILABLE else "redis-py's own parsers"
    missing = [peer for peer in PEERS.values() if peer not in pythons]
    remarks = [f"Not measured, because their environments {why}: {', '.join(missing)}."] if missing else []
    return FigureResults(NAME, figures, found, (f"segmented and redis-py read replies by {parser}.", *remarks))


def _pythons(progress: Progress, *, only_there: bool) -> dict[str, Path]:
    """Return the interpreters of the competitors' environments; missing environments are created."""
    found = {}
    for name in PEERS.values():
        library = Environment(name, REQUIREMENTS)
        if not only_there or is_made(library, ROOT / ".peers"):
            progress(f"environment of {library.name}", 0, 1)
            with suppress(SegmentedError):  # a remark names the missing one
                found[library.name] = interpreter_of(library, ROOT / ".peers")
    return found


def measure_renewal(url: str, progress: Progress) -> list[Figure]:
    """Hold the leases for a while, and read the CPU time of this otherwise idle process."""
    others = _keepers()  # threads of other stores of this process
    with RedisStore.from_url(url) as store:
        leases = _held(store)
        threads = len(_keepers() - others)
        cpu, began = time.process_time(), time.perf_counter()
        while (passed := time.perf_counter() - began) < WATCHED_SECONDS:
            progress("10,000 leases renewed", int(passed), int(WATCHED_SECONDS))
            time.sleep(1)
        used = (time.process_time() - cpu) / passed
        lost = sum(lease.is_lost for lease in leases)
        for start in range(0, LEASES, 1_000):
            store.execute_many([lease.claim.releasing() for lease in leases[start : start + 1_000]])
        for lease in leases:
            lease.has_ended = True
    return [
        Figure("10,000 leases of 30 s: cores used to renew them", used, "", at_most=CORE_MAX),
        Figure("10,000 leases of 30 s: lost", lost, "", at_most=0, is_promise=True),
        Figure("10,000 leases of 30 s: threads", threads, "", at_most=1, is_promise=True),
    ]


def _keepers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "segmented-keeper"}


def _held(store: RedisStore) -> list[Lease]:
    claims = [LockClaim(f"renewed-{index}", f"h{index}", TTL_MS) for index in range(LEASES)]
    asked_at = store.clock.now()
    answers = store.execute_many([claim.acquiring() for claim in claims])
    renewal = Renewal(is_wanted=True, seconds_max=3_600)
    return [
        Lease(store, claim, renewal, answer, asked_at)
        for claim, answer in zip(claims, answers, strict=True)
        if isinstance(answer, Acquired)
    ]

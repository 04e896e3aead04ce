"""`torture segments`: how long a free segment stays unused while somebody waits for one, with buyers that are killed.

Processes of several threads buy from one pool with fewer segments than buyers, in every way that there is: patiently,
without waiting, fairly, without a lock, and beyond the lease. Some processes are killed, and others paused. Meanwhile a
sampler reads the raw keys of the pool on the server, which the library does not know of: which segments have a lock,
and whether the line of waiting processes has an entry. Each buyer notes outside of the server since when it waits, in a
file that the sampler has mapped.

A segment is unused from the moment at which it is free and the longest waiting buyer waits, whichever is later, until
the first sample that sees it taken. Killed and paused buyers do not wait. The figure includes what the machine adds:
the time until a buyer that was woken is scheduled, and the time between two samples.
"""

import mmap
import struct
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

import redis

from bench.conditions import server_conditions
from bench.results import Display
from segmented.errors import AlreadySettled, LeaseLost, StoreUnavailable
from segmented.keys import shard_keys
from segmented.models import Order
from segmented.servers import ValkeyServer
from segmented.stock import Grant, Pool
from segmented.stores.redis import RedisStore
from tests.torture.options import require_seed, require_within
from tests.torture.report import Report
from tests.torture.supervisor import Processes, connected, crash, wait_for_end

SKU: Final = "sampled"
STOCK: Final = 100_000_000
TTL: Final = 0.5
HOLD: Final = 2.0
HOLD_SECONDS: Final = (0.002, 0.02)
"""A buyer holds a segment for longer than the time between two samples, so that none misses it."""
OVERSLEPT: Final = 0.02
"""Share of buyers that hold a segment beyond its lease."""
WAYS: Final = {"patient": 12, "impatient": 2, "try": 2, "fair": 2, "without a lock": 2}
SECONDS_OF: Final = {"patient": 10.0, "impatient": 0.05, "try": 0.0, "fair": 10.0}
PAUSED: Final = (AlreadySettled, LeaseLost, StoreUnavailable)
"""Errors of a buyer that was paused: its call timed out, its lease ended, or its hold."""
GAP: Final = 0.7
"""Mean seconds between two faults: as many kills as pauses."""
PAUSE_SECONDS: Final = (0.05, 1.0)
TICK: Final = 0.02
SAMPLE_SECONDS: Final = 0.001
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
ASKED_MS: Final = 100.0
SLOT: Final = struct.Struct("=q")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsOptions:
    """The options of a run."""

    seconds: float = 60.0
    processes: int = 8
    threads: int = 4
    segments: int = 4
    seed: int = 1

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        require_within("--seconds", self.seconds, 1.0, 86_400.0)
        require_within("--processes", self.processes, 2, 64)
        require_within("--threads", self.threads, 1, 64)
        require_within("--segments", self.segments, 1, 128)
        require_seed(self.seed)


class WaitingBuyers:
    """Since when each buyer waits, in a file that all processes have mapped; 0 for one that does not."""

    def __init__(self, path: Path, threads: int, processes: int = 0) -> None:
        """Map the file; with `processes`, make it with room for so many."""
        if processes:
            path.write_bytes(bytes(SLOT.size * threads * processes))
        with path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 0)
        self._threads = threads

    def note(self, process: int, thread: int, since_ns: int) -> None:
        """Note since when a buyer waits; 0: it does not."""
        SLOT.pack_into(self._mapped, SLOT.size * (process * self._threads + thread), since_ns)

    def longest_since(self, awake_since: Sequence[int | None]) -> int | None:
        """Return since when the buyer waits that waits longest, of the processes that are awake; None if none waits.

        A process that was paused waits again since it was resumed.
        """
        found = []
        for process, awake_ns in enumerate(awake_since):
            for thread in range(self._threads if awake_ns is not None else 0):
                (since_ns,) = SLOT.unpack_from(self._mapped, SLOT.size * (process * self._threads + thread))
                if since_ns:
                    found.append(max(since_ns, awake_ns or 0))
        return min(found, default=None)

    def forget(self, process: int) -> None:
        """Forget the buyers of a process that was killed."""
        for thread in range(self._threads):
            self.note(process, thread, 0)


@dataclass(slots=True)
class UnusedSegments:
    """Measures from samples how long free segments stay unused."""

    segments: int
    unused_ns: list[int] = field(default_factory=list)
    """Of each segment that was free beside a waiter, and then taken, or left by the last waiter."""
    samples: int = 0
    gap_max_ns: int = 0
    """Longest time between two samples."""
    _last_ns: int = 0
    _free_since: dict[int, int] = field(default_factory=dict)
    _unused_since: dict[int, int] = field(default_factory=dict)

    def sample(self, now_ns: int, free: set[int], longest_ns: int | None) -> None:
        """Take one sample: which segments are free, and since when the longest waiting buyer waits, if one does."""
        self.samples += 1
        self.gap_max_ns = max(self.gap_max_ns, now_ns - self._last_ns) if self._last_ns else 0
        self._last_ns = now_ns
        for segment in range(self.segments):
            is_unused = segment in free and longest_ns is not None
            since_ns = self._unused_since.pop(segment, None)
            if since_ns is not None and not is_unused:
                self.unused_ns.append(now_ns - since_ns)
            if segment not in free:
                self._free_since.pop(segment, None)
            elif longest_ns is not None:
                self._unused_since[segment] = max(self._free_since.setdefault(segment, now_ns), longest_ns)
            else:
                self._free_since.setdefault(segment, now_ns)

    def share_ms(self, share: float) -> float:
        """Return a percentile by nearest rank, in milliseconds; 0 without a value."""
        ordered = sorted(self.unused_ns)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6 if ordered else 0.0


class _Sampler(threading.Thread):
    """Reads the raw keys in one transaction, again and again."""

    def __init__(self, url: str, options: SegmentsOptions, waiting: WaitingBuyers) -> None:
        super().__init__(daemon=True)
        self._client = redis.Redis.from_url(url)
        self._waiting = waiting
        keys = shard_keys(SKU)
        self._line, self._locks = keys.line, [f"{keys.lock}:{segment}" for segment in range(options.segments)]
        self.unused = UnusedSegments(options.segments)
        self.awake_since: list[int | None] = [None] * options.processes
        self._has_stopped = threading.Event()

    def stop(self) -> None:
        """Take no more samples."""
        self._has_stopped.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Take samples until it is stopped."""
        while not self._has_stopped.wait(SAMPLE_SECONDS):
            with self._client.pipeline(transaction=True) as pipe:
                for lock in self._locks:
                    pipe.exists(lock)
                pipe.zcard(self._line)
                *locked, in_line = pipe.execute()
            free = {segment for segment, is_locked in enumerate(locked) if not is_locked}
            longest = self._waiting.longest_since(list(self.awake_since)) if in_line else None
            self.unused.sample(time.monotonic_ns(), free, longest)
        self._client.close()


def torture_segments(options: SegmentsOptions, display: Display) -> Report:
    """Run on an embedded server. Raises SegmentedError if a process ends that the run did not kill."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-torture-")))
        url = stack.enter_context(ValkeyServer.start()).url
        store = stack.enter_context(RedisStore.from_url(url))
        progress = stack.enter_context(display.strategy("torture segments"))
        conditions = server_conditions(url)
        pool = Pool(store, SKU, ttl=TTL, hold=HOLD)
        pool.open(stock=STOCK, segments=options.segments)
        waiting = WaitingBuyers(folder / "waiting", options.threads, options.processes)
        processes = stack.enter_context(Processes(folder))
        sampler = _Sampler(url, options, waiting)
        stack.callback(sampler.stop)
        run = _Run(options, url, folder, processes, sampler, waiting)
        progress("starting", 0, 1)
        run.start()
        sampler.start()
        until = time.monotonic() + options.seconds
        while (left := until - time.monotonic()) > 0:
            run.step()
            progress("faults", int(options.seconds - left), int(options.seconds))
            time.sleep(TICK)
        sampler.stop()
        run.stop()
        audit = pool.audit()
        zeros = {"drift": audit.drift_count, "oversold": audit.oversold, "refused_wrongly": audit.refused_wrongly}
        sold = pool.state().confirmed
        return report_of(options, sampler.unused, run.counts | {"sold": sold}, zeros, conditions)


class _Run:
    """The buyers of a run, by place: each place has one process, which is replaced when it is killed."""

    def __init__(  # what a run has started, each once
        self,
        options: SegmentsOptions,
        url: str,
        folder: Path,
        processes: Processes,
        sampler: _Sampler,
        waiting: WaitingBuyers,
    ) -> None:
        self._options, self._url, self._folder = options, url, folder
        self._processes, self._sampler, self._waiting = processes, sampler, waiting
        self._random = Random(f"segments/{options.seed}")
        self._numbers: list[int] = []
        self._resumed_at: dict[int, float] = {}
        self._next_at = 0.0
        self.counts = {"kills": 0, "pauses": 0}

    def start(self) -> None:
        """Start all buyers, and wait until they buy."""
        self._numbers = [self._start(place) for place in range(self._options.processes)]
        for place, number in enumerate(self._numbers):
            self._processes.hear(number, START_SECONDS)
            self._sampler.awake_since[place] = time.monotonic_ns()
        self._next_at = time.monotonic() + GAP

    def step(self) -> None:
        """Inject the fault that is due, and resume who was paused for long enough."""
        self._processes.require_alive()
        now = time.monotonic()
        for place, at in list(self._resumed_at.items()):
            if now >= at:
                del self._resumed_at[place]
                self._processes.resume(self._numbers[place])
                self._sampler.awake_since[place] = time.monotonic_ns()
        if now < self._next_at:
            return
        self._next_at = now + self._random.uniform(0.2, 1.8) * GAP
        awake = [place for place in range(self._options.processes) if place not in self._resumed_at]
        if len(awake) <= self._options.processes // 2:
            return
        place = self._random.choice(awake)
        self._sampler.awake_since[place] = None
        if self._random.random() < 1 / 2:
            self._processes.kill(self._numbers[place])
            self._waiting.forget(place)
            self._numbers[place] = self._start(place)
            self._sampler.awake_since[place] = time.monotonic_ns()
            self.counts["kills"] += 1
        else:
            self._processes.pause(self._numbers[place])
            self._resumed_at[place] = now + self._random.uniform(*PAUSE_SECONDS)
            self.counts["pauses"] += 1

    def stop(self) -> None:
        """Let all buyers finish."""
        self._processes.ask_to_stop()
        self._processes.join(STOP_SECONDS)
        self._processes.require_alive()

    def _start(self, place: int) -> int:
        assignment = _Buying(self._url, str(self._folder / "waiting"), place, self._options.threads, self._options.seed)
        return self._processes.start(_be_buyers, assignment)


@dataclass(frozen=True, slots=True)
class _Buying:
    url: str
    waiting: str
    place: int
    threads: int
    seed: int


def _be_buyers(pipe: Connection, assignment: _Buying) -> None:
    waiting = WaitingBuyers(Path(assignment.waiting), assignment.threads)
    stop = threading.Event()
    with connected(assignment.url) as store:
        pool = Pool(store, SKU, ttl=TTL, hold=HOLD)
        threads = [
            threading.Thread(target=_buy, args=(pool, waiting, assignment, thread, stop), daemon=True)
            for thread in range(assignment.threads)
        ]
        for thread in threads:
            thread.start()
        with suppress(BrokenPipeError):  # asked to stop at its start
            pipe.send("ready")
        wait_for_end(pipe)
        stop.set()
        for thread in threads:
            thread.join()


def _buy(pool: Pool, waiting: WaitingBuyers, assignment: _Buying, thread: int, stop: threading.Event) -> None:
    random = Random()  # not seeded: a replaced process must not repeat the order ids of a killed one
    try:
        while not stop.is_set():
            order_id = f"{assignment.place}.{thread}-{random.getrandbits(64):016x}"
            (way,) = random.choices(list(WAYS), list(WAYS.values()))
            with suppress(*PAUSED):
                if way == "without a lock":
                    pool.reserve(Order(order_id))
                    pool.confirm(order_id)
                    continue
                seconds = SECONDS_OF[way]
                waiting.note(assignment.place, thread, time.monotonic_ns() if seconds else 0)
                try:
                    grant = pool.grant(order_id, timeout=seconds, fair=way == "fair")
                finally:
                    waiting.note(assignment.place, thread, 0)
                if isinstance(grant, Grant):
                    is_late = random.random() < OVERSLEPT
                    time.sleep(TTL * random.uniform(1.1, 1.5) if is_late else random.uniform(*HOLD_SECONDS))
                    grant.confirm()
    except Exception:  # noqa: BLE001  # the supervisor must notice any error
        crash()


def report_of(
    options: SegmentsOptions,
    unused: UnusedSegments,
    counts: dict[str, int],
    zeros: dict[str, int],
    conditions: dict[str, Any],
) -> Report:
    """Return the report. How long segments were unused is a figure, not a guarantee: the machine adds to it."""
    p999, largest = unused.share_ms(0.999), unused.share_ms(1.0)
    figures = {
        **counts,
        "samples": unused.samples,
        "sample_gap_max_ms": round(unused.gap_max_ns / 1e6, 1),
        "unused_count": len(unused.unused_ns),
        "unused_p50_ms": round(unused.share_ms(0.5), 1),
        "unused_p999_ms": round(p999, 1),
        "unused_max_ms": round(largest, 1),
        "asked_ms": ASKED_MS,
    }
    rows = [
        ("units sold", f"{counts['sold']:,}"),
        ("processes killed, paused", f"{counts['kills']:,}, {counts['pauses']:,}"),
        ("samples; longest time between two", f"{unused.samples:,}; {unused.gap_max_ns / 1e6:.1f} ms"),
        ("segments free beside a waiter", f"{len(unused.unused_ns):,}"),
        ("unused for, median", f"{unused.share_ms(0.5):.1f} ms"),
        ("unused for, 99.9th percentile", f"{p999:.1f} ms"),
        ("unused for, largest", f"{largest:.1f} ms (asked: {ASKED_MS:g} ms)"),
    ]
    given = {"seconds": options.seconds, "processes": options.processes, "threads": options.threads}
    return Report(
        benchmark="torture-segments",
        broken=[f"{name} in the audit: {count:,}, must be 0" for name, count in zeros.items() if count],
        must_be_zero=zeros,
        figures=figures,
        conditions=conditions | {"options": given | {"segments": options.segments, "seed": options.seed}},
        rows=rows,
    )

"""The whole benchmark `dedup`, on one server: bursts of trivial tasks in a worker, and its measurements of records.

The tasks are plain or have `Once`, and markers of the begin and end of a burst are beside them. `python -m
bench.micro.dedup URL` is a `celery worker` of one process with these tasks, which ends when its standard input ends, so
that it never outlives its parent. The driver starts it, sends it bursts, reads how long they took, and counts round
trips.

Records by number: keys and ids are as long as those of real tasks. The server's time for a claim among few and among
many live keys, in alternating batches on one server. Memory per record in each of its states: the server's used memory
before and after, with index and overhead.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis
from celery import Celery

from bench.children import close_process, start_child
from bench.conditions import OtherLoad
from bench.figures import Figure, FigureResults, of_rounds
from bench.micro.stock import ScriptCounter, emptied, measured_server, quiet
from segmented import RedisStore
from segmented.celery.settings import kombu_url
from segmented.dedup import StoreEffect
from segmented.dedup.celery import Once, serial, unique
from segmented.errors import SegmentedError
from segmented.keys import once_keys
from segmented.models.dedup import RecordName, RunBegun
from segmented.protocol import BeginRun, ClaimKey, FinishRun

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.results import Display, Progress
    from segmented.dedup.celery import OnceRule
    from segmented.protocol import Operation

    Bursts = Mapping[str, Sequence["Burst"]]

BROKER: Final = 0
RECORDS: Final = 1
"""Databases of the worker part: broker and records are separate, as the settings of `Once` require."""
NAMESPACE: Final = "bench"
QUEUE: Final = "bench"
SAID: Final = "bench:said"
"""List of messages from the worker."""
GO: Final = "bench:go"
"""List of messages to the worker."""
WAIT_SECONDS: Final = 60
INCREMENT: Final = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
COUNTS: Final = "bench:counts"

PLAIN: Final = "plain"
PLAIN_EFFECT: Final = "plain, one script"
EXACTLY_ONCE: Final = "unique, with an effect"
ONCE: Final = ("unique", "serial")
"""Rules of the tasks that do nothing."""
OPTIONS = ("--pool=solo", "--loglevel=WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")


def at_database(url: str, number: int) -> str:
    """Return the URL of another database of the server."""
    parts = urlsplit(url)
    query = [(key, value) for key, value in parse_qsl(parts.query) if key != "db"]
    if parts.scheme == "unix":
        return f"unix://{parts.netloc}{parts.path}?{urlencode([*query, ('db', number)])}"
    return urlunsplit((parts.scheme, parts.netloc, f"/{number}", urlencode(query), ""))


def make_app(url: str) -> Celery:
    """Create the app for the publisher or the worker."""
    app = Celery("bench-dedup", broker=kombu_url(at_database(url, BROKER)), set_as_current=False)
    app.conf.update(
        task_default_queue=QUEUE,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        broker_connection_retry_on_startup=True,
        once_url=at_database(url, RECORDS),
        once_namespace=NAMESPACE,
    )
    _add_marks(app, url)
    _add_trivial(app, url)
    return app


def _add_marks(app: Celery, url: str) -> None:
    """Add the tasks before and after a burst; the first holds the worker until everything is published."""
    began: list[float] = []
    client = redis.Redis.from_url(at_database(url, BROKER))

    def hold() -> None:
        client.lpush(SAID, "held")
        deadline = time.monotonic() + WAIT_SECONDS
        while client.blpop([GO], 1) is None and time.monotonic() < deadline:
            pass  # one second at a time: the client's socket timeout ends longer waits
        began[:] = [time.perf_counter(), time.process_time()]

    def mark() -> None:
        ended = [time.perf_counter(), time.process_time()]
        client.lpush(SAID, json.dumps([after - before for before, after in zip(began, ended, strict=True)]))

    app.task(name="hold", shared=False)(hold)
    app.task(name="mark", shared=False)(mark)


def _add_trivial(app: Celery, url: str) -> None:
    increment = redis.Redis.from_url(at_database(url, RECORDS)).register_script(INCREMENT)

    def nothing(item: str) -> None:
        """Do nothing."""

    def by_script(item: str) -> Any:  # noqa: ANN401  # what the script returns
        return increment(keys=[f"{COUNTS}:{item}"], args=[1])

    def by_effect(item: str) -> StoreEffect:
        return StoreEffect(INCREMENT, keys=[f"{COUNTS}:{item}"], arguments=[1])

    bodies: dict[str, tuple[OnceRule, Callable[[str], object]]] = {
        "unique": (unique("{item}"), nothing),
        "serial": (serial("{item}"), nothing),
        EXACTLY_ONCE: (unique("{item}", keep="1d"), by_effect),
    }
    for name, (rule, body) in bodies.items():
        app.task(name=name, shared=False, base=Once, once=rule)(body)
    app.task(name=PLAIN, shared=False)(nothing)
    app.task(name=PLAIN_EFFECT, shared=False)(by_script)


# --- the driver of the worker, and the records ---

MEMORY: Final = 2
FEW: Final = 3
MANY: Final = 4
"""Databases of the records that are measured by number."""
LEAVE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many of everything is measured."""

    rounds: int = 30
    """Rounds, if there is time; each runs every kind of task once, in random order."""
    tasks: int = 50
    """Tasks per kind and round."""
    records: int = 5_000
    """Records whose memory is measured."""
    live_keys: tuple[int, int] = (2_000, 1_000_000)
    """Numbers of live keys, between which the server's time for a claim is compared; of the second, as many as there is
    time for."""
    claims: int = 20_000
    """Claims at each of the two numbers, if there is time."""
    seconds: float = 15.0
    """Maximum seconds of the rounds, of filling the server, and of the claims: each ends with what it has by then."""


@dataclass(frozen=True, slots=True)
class BenchContext:
    """The server, the sizes and the progress callback."""

    url: str
    sizes: Sizes
    progress: Progress


@contextmanager
def server_of(context: BenchContext, number: int) -> Iterator[tuple[RedisStore, redis.Redis]]:
    """Connect a store and a plain client to a database; the database is emptied at the end."""
    url = at_database(context.url, number)
    with RedisStore.from_url(url) as store, redis.Redis.from_url(url) as client:
        try:
            yield store, client
        finally:
            client.flushdb()


@dataclass(frozen=True, slots=True)
class Burst:
    """The cost of tasks of one kind, per task. Times are in microseconds."""

    published: float
    published_cpu: float
    """CPU time of this process."""
    published_trips: float
    """Scripts that the server ran for the publisher."""
    worked: float
    """From the first start to the last end, by the worker's clock."""
    worked_cpu: float
    """CPU time of the worker's process."""
    worked_trips: float
    """Scripts that the server ran for the worker."""
    server: float
    """The server's time in the worker's scripts."""


class WorkerDriver:
    """Sends tasks to a running worker."""

    def __init__(self, url: str, app: Celery, worker: subprocess.Popen[str]) -> None:
        """Drive `worker`, and publish with `app`."""
        self._app = app
        self._worker = worker
        self._client = redis.Redis.from_url(at_database(url, BROKER))

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._worker.pid

    def burst(self, kind: str, items: list[str]) -> Burst:
        """Hold the worker, publish one task per item, and release the worker. Each item is used only once."""
        task, count = self._app.tasks[kind], len(items)
        self._app.tasks["hold"].apply_async()
        self._next_message()
        counter = ScriptCounter(self._client)
        began, began_cpu = time.perf_counter(), time.process_time()
        for item in items:
            task.apply_async((item,))
        published, published_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        published_trips, _ = counter.of()
        self._app.tasks["mark"].apply_async()
        counter = ScriptCounter(self._client)
        self._client.lpush(GO, "go")
        worked, cpu = json.loads(self._next_message())
        trips, server = counter.of()
        each = 1e6 / count
        return Burst(
            published * each,
            published_cpu * each,
            published_trips / count,
            worked * each,
            cpu * each,
            trips / count,
            server / count,
        )

    def _next_message(self) -> str:
        """Wait for the worker's next message. Raises SegmentedError if there is none in time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline and self._worker.poll() is None:
            said: Any = self._client.blpop([SAID], 1)
            if said is not None:
                return str(said[1].decode())
        raise SegmentedError(f"the worker of the benchmark said nothing for {WAIT_SECONDS} s, or ended")

    def close(self) -> None:
        """Close the connection to the server."""
        self._client.close()


@contextmanager
def running_worker(url: str) -> Iterator[WorkerDriver]:
    """Start a worker, yield its driver, and end the worker."""
    app = make_app(url)
    with tempfile.TemporaryFile() as errors:
        worker = start_child(("-m", "bench.micro.dedup", url), errors=errors, output=errors)
        driver = WorkerDriver(url, app, worker)
        try:
            yield driver
        except SegmentedError as error:
            errors.seek(0)
            error.add_note(errors.read()[-1_000:].decode(errors="replace"))
            raise
        finally:
            driver.close()
            close_process(worker, seconds=LEAVE_SECONDS)
            app.close()


BESIDE: Final[dict[str, str]] = {**dict.fromkeys(ONCE, PLAIN), EXACTLY_ONCE: PLAIN_EFFECT}
"""The plain task with which a level is compared: one that does the same."""
KINDS: Final = (PLAIN, PLAIN_EFFECT, *BESIDE)
WARM_UP: Final = 10
TRIP_MAX: Final = 0.15
"""Maximum cost of a round trip that `Once` adds, as a share of the plain task's time."""
TRIPS_MAX: Final = 2.0
PUBLISHER_MAX: Final = 1.25
WORKER_MAX: Final = 1.3
"""Maximum CPU times, as a multiple of those of the plain task."""
ROUNDS_MIN: Final = 3


def measure_trivial(context: BenchContext) -> list[Figure]:
    """Run bursts of every kind alternately, a few hundred tasks each."""
    sizes = context.sizes
    chance = random.Random(1)
    found: dict[str, list[Burst]] = {kind: [] for kind in KINDS}
    with running_worker(context.url) as driver:
        for kind in KINDS:
            driver.burst(kind, [f"warm-{index}" for index in range(WARM_UP)])
        other_load = OtherLoad()
        until = time.monotonic() + sizes.seconds
        for number in range(sizes.rounds):
            if number >= ROUNDS_MIN and time.monotonic() > until:
                break
            context.progress("trivial tasks", number, sizes.rounds)
            for kind in chance.sample(KINDS, len(KINDS)):
                found[kind].append(driver.burst(kind, [f"{number}-{index}" for index in range(sizes.tasks)]))
        cores = other_load.cores()
    rounds = {"rounds": len(found[PLAIN])}
    return [*figures_of(found), Figure("cores that others used meanwhile", cores, "", detail=rounds)]


def figures_of(found: Bursts) -> list[Figure]:
    """Compare the bursts of each round with the plain bursts of the same round."""
    figures = [figure for kind in BESIDE for figure in _of_worker(found, kind)]
    figures += [figure for kind in BESIDE for figure in _of_publisher(found, kind)]
    bare = [effect.worked / plain.worked - 1 for effect, plain in zip(found[PLAIN_EFFECT], found[PLAIN], strict=True)]
    figures.append(of_rounds("for comparison: added by one bare round trip of redis-py, an INCRBY by script", bare, ""))
    return figures + [
        of_rounds(f"{kind}: a task in the worker", [burst.worked for burst in found[kind]], "us") for kind in KINDS
    ]


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
        of_rounds(f"{kind} / {plain}: CPU of the worker", cpu, "", at_most=WORKER_MAX),
        Figure(f"{kind}: round trips of the worker", trips, "", at_most=TRIPS_MAX, is_promise=True),
        of_rounds(f"{kind}: added by each of {added:g} more round trips", each, "", at_most=TRIP_MAX),
        of_rounds(f"{kind}: server time of its scripts", [burst.server for burst in found[kind]], "us"),
    ]


def _of_publisher(found: Bursts, kind: str) -> list[Figure]:
    trips = statistics.median(burst.published_trips for burst in found[kind])
    times = _ratios(found, kind, lambda burst: burst.published)
    cpu = _ratios(found, kind, lambda burst: burst.published_cpu)
    figures = [
        of_rounds(f"{kind} / {BESIDE[kind]}: time of apply_async", times, ""),
        of_rounds(f"{kind} / {BESIDE[kind]}: CPU of apply_async", cpu, "", at_most=PUBLISHER_MAX),
        Figure(f"{kind}: round trips of apply_async", trips, "", at_most=TRIPS_MAX, is_promise=True),
    ]
    if trips:
        each = [(ratio - 1) / trips for ratio in times]
        figures.append(of_rounds(f"{kind}: added to apply_async by each round trip", each, "", at_most=TRIP_MAX))
    return figures


def _ratios(found: Bursts, kind: str, part: Callable[[Burst], float]) -> list[float]:
    return [part(ours) / part(plain) for ours, plain in zip(found[kind], found[BESIDE[kind]], strict=True)]


NAME: Final = "dedup"
BATCH: Final = 1_000
HOUR_MS: Final = 3_600_000
TASK: Final = "shop.tasks.charge"
HOLDER: Final = "0123456789abcdef" * 2
PRINT: Final = "fedcba9876543210" * 2
RATIO_MAX: Final = 1.1
PROBE: Final = 500
"""Claims per batch; they are removed after it."""
SMALL: Final = '{"charged": true}'
LARGER: Final = "7" * 200
LESS: Final = 5
"""Divisor of the number of records with the larger result: making them takes time, and only the size matters."""


def measure_dedup(url: str | None, display: Display, sizes: Sizes | None = None) -> FigureResults:
    """Measure on an embedded server, unless another is named: it must be empty, and is emptied at the end."""
    with measured_server(url, "celery") as (own, found), emptied(own), display.strategy(NAME) as progress:
        context = BenchContext(own, sizes or Sizes(), progress)
        figures = (*measure_trivial(context), *measure_memory(context), *measure_claims(context))
    one_server = f"Broker and records are databases of one server; {found['placement']}"
    return FigureResults(NAME, figures, found, (f"{one_server}; one worker process (solo), results ignored.",))


def claiming(name: str, index: int) -> ClaimKey:
    """Return the operation that claims one key; `name`, up to 15 characters, distinguishes sets of records."""
    return ClaimKey(_record(name, index), _message(name, index), PRINT, TASK, HOUR_MS, HOUR_MS)


def beginning(name: str, index: int) -> BeginRun:
    """Return the operation that begins the run of that key's message."""
    return BeginRun(_record(name, index), _message(name, index), HOLDER, PRINT, TASK, HOUR_MS, HOUR_MS)


def batches(count: int, size: int = BATCH) -> Iterator[range]:
    """Divide `count` numbers into batches."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def performed(
    context: BenchContext,
    store: RedisStore,
    phase: str,
    count: int,
    make: Callable[[int], Operation[Any]],
    until: float = inf,
) -> Iterator[Any]:
    """Perform one operation per number, in batches, two at a time: one on the server, one being made here."""

    def perform(batch: range) -> list[Any]:
        if batch.start and time.monotonic() > until:
            return []
        return store.execute_many([make(index) for index in batch])

    with ThreadPoolExecutor(2) as threads:
        for done, answers in enumerate(threads.map(perform, batches(count))):
            context.progress(phase, done * BATCH, count)
            yield from answers


def _record(name: str, index: int) -> RecordName:
    return RecordName(NAMESPACE, f"{name:->16}{index:016x}")  # as long as a digest


def _message(name: str, index: int) -> str:
    return f"{name:->20}{index:016x}"  # as long as a task id


def measure_claims(context: BenchContext) -> list[Figure]:
    """Fill two databases of the server, then claim more keys in each of them alternately."""
    seconds = context.sizes.seconds
    with server_of(context, FEW) as small, server_of(context, MANY) as large:
        few, many = (
            _claimed_in_time(context, store, count, time.monotonic() + seconds)
            for (store, _), count in zip((small, large), context.sizes.live_keys, strict=True)
        )
        found: dict[int, list[float]] = {few: [], many: []}
        probes = list(batches(context.sizes.claims, PROBE))
        until = time.monotonic() + seconds
        for number, batch in enumerate(probes):
            if number >= ROUNDS_MIN and time.monotonic() > until:
                break
            context.progress("claims among live keys", number, len(probes))
            sides = [(few, small), (many, large)]
            for count, side in sides if number % 2 else reversed(sides):
                found[count].append(_claimed(*side, batch))
    ratio = quiet(found[many]) / quiet(found[few])
    return [
        Figure(f"a claim: server time, {many:,} live keys / {few:,}", ratio, "", at_most=RATIO_MAX),
        *(_claim_figure(f"a claim: server time, at {count:,} live keys", times) for count, times in found.items()),
    ]


def _claim_figure(name: str, times: list[float]) -> Figure:
    return Figure(
        name, quiet(times), "us", min(times), max(times), detail={"interval": "least and most of the batches"}
    )


def _claimed_in_time(context: BenchContext, store: RedisStore, count: int, until: float) -> int:
    """Claim keys, and at least a batch; return how many."""
    made = performed(context, store, f"claiming {count:,} keys", count, lambda index: claiming("live", index), until)
    return sum(1 for _ in made)


def _claimed(store: RedisStore, client: redis.Redis, batch: range) -> float:
    """Return the server's microseconds per claim of a batch, and remove its keys."""
    claims = [claiming("probe", index) for index in batch]
    counter = ScriptCounter(client)
    store.execute_many(claims)
    calls, used = counter.of()
    pipe = client.pipeline(transaction=False)
    for claim in claims:
        keys = once_keys(claim.record.namespace, claim.record.key)
        pipe.delete(keys.record)
        pipe.zrem(keys.claims, claim.record.key)
    pipe.execute()
    return used / max(1, calls)


def measure_memory(context: BenchContext) -> list[Figure]:
    """Move all records from state to state, and fewer records to a larger result."""
    count = context.sizes.records
    with server_of(context, MEMORY) as (store, client):
        waiting, running, done = _states(context, store, client, count, SMALL)
        *_, larger = _states(context, store, client, max(1, count // LESS), LARGER)
    return [
        _figure("waiting", waiting, count),
        _figure("running", running, count),
        _figure(f"done, with a result of {len(SMALL)} bytes", done, count),
        _figure(f"done, with a result of {len(LARGER)} bytes", larger, max(1, count // LESS)),
    ]


def _states(context: BenchContext, store: RedisStore, client: redis.Redis, count: int, result: str) -> list[float]:
    """Return the bytes of a record when it waits, runs, and is done."""
    tokens: dict[int, int] = {}
    empty = _used(client)

    def finishing(index: int) -> FinishRun:
        begun = beginning("memory", index)
        return FinishRun(begun.record, begun.message, HOLDER, tokens[index], "value", result, HOUR_MS, HOUR_MS)

    sizes = []
    for make in (lambda index: claiming("memory", index), lambda index: beginning("memory", index), finishing):
        for index, answer in enumerate(performed(context, store, "memory of records", count, make)):
            if isinstance(answer, RunBegun):
                tokens[index] = answer.fencing_token
        sizes.append((_used(client) - empty) / count)
    client.execute_command("FLUSHDB", "SYNC")  # synchronously: the memory must be free now
    return sizes


def _figure(state: str, size: float, count: int) -> Figure:
    return Figure(f"memory of a record, {state}", size, "bytes", detail={"records": count})


def _used(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


# --- the worker ---


def main(url: str) -> None:
    """Run the worker until standard input ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    make_app(url).worker_main(["worker", *OPTIONS])


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])

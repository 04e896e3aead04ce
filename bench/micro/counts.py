"""`segmented bench counts`: counts the commands of typical sequences of calls on a fresh embedded server.

The counts of an operation are the server's own for one client, minus the cost of reading them. They are compared with
the committed ones in counts.json; a better count is a difference too, to be committed.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from bench.results import say, show_rows
from bench.sections import Section
from bench.strategies import STRATEGIES
from bench.strategies.base import Sold, StrategyContext
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, SegmentedError
from segmented.locks import Lock
from segmented.locks.claim import HERE
from segmented.models import Order
from segmented.orders import take_envelope
from segmented.servers import ValkeyServer
from segmented.stock import Grant, Outbox, Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from bench.strategies.base import Strategy

GATED: Final = ("commands", "round_trips", "attempts", "bytes")
"""Fields that must be equal in every run; times are only shown."""
NOT_COUNTED: Final = frozenset({"cmdstat_info", "cmdstat_config|resetstat"})
BASELINE: Final = Path(__file__).with_name("counts.json")
SCHEMA: Final = "segmented-counts/1"
REWRITE: Final = "write the baseline with `segmented bench counts --write`, and commit it"


@dataclass(frozen=True, slots=True)
class Tally:
    """Totals of a fixed sequence of `orders` orders."""

    orders: int
    commands: int
    """Commands processed by the server, those inside scripts included."""
    round_trips: int
    """Reads of the server's event loop; with one client that waits for each answer, one per round trip."""
    attempts: int
    """Lock requests as the strategy reports them; 0 for an operation that reports none."""
    bytes: int
    """Network bytes in and out of the server."""
    server_us: int = 0
    """CPU microseconds of the server. They differ from run to run."""

    def as_json(self) -> dict[str, int]:
        """Return the fields for the baseline."""
        return {name: value for name, value in asdict(self).items() if name != "server_us"}

    def each(self, name: str) -> str:
        """Return a count per order, as the shortest exact fraction or decimal."""
        return f"{getattr(self, name) / self.orders:,.6g}"


class Counter:
    """Reads the server's counts over its own connection, and subtracts the cost of reading."""

    def __init__(self, client: redis.Redis) -> None:
        """Measure the cost of reading: a reading includes its own request, but not the reset before it."""
        self._client = client
        client.info("everything")  # connect, and finish the handshake
        self._cpu_us = 0
        self.begin()
        self._overhead = self._read()

    def begin(self) -> None:
        """Start counting."""
        self._client.config_resetstat()
        found: Any = self._client.info("cpu")
        self._cpu_us = _cpu_us(found)

    def tally(self, orders: int, attempts: int) -> Tally:
        """Return the counts since `begin`."""
        now = self._read()
        reads, size = now["reads"] - self._overhead["reads"], now["bytes"] - self._overhead["bytes"]
        return Tally(orders, now["commands"], reads, attempts, size, max(0, now["us"] - self._overhead["us"]))

    def _read(self) -> dict[str, int]:
        found: Any = self._client.info("everything")
        stats = {name: one for name, one in found.items() if name.startswith("cmdstat_") and name not in NOT_COUNTED}
        return {
            "commands": sum(int(one["calls"]) for one in stats.values()),
            "us": _cpu_us(found) - self._cpu_us,
            "reads": int(found["total_reads_processed"]),
            "bytes": int(found["total_net_input_bytes"]) + int(found["total_net_output_bytes"]),
        }


def _cpu_us(found: dict[str, Any]) -> int:
    return round((float(found["used_cpu_user"]) + float(found["used_cpu_sys"])) * 1_000_000)


def read_baseline(file: Path) -> dict[str, Tally]:
    """Read the counts. Raises InvalidInput that names the error in the file."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            raise InvalidInput(f"{file} is of schema {found['schema']!r}, and this reads {SCHEMA!r}")
        counts = found["counts"].items()  # without times
        return {name: Tally(**{field: int(one[field]) for field in ("orders", *GATED)}) for name, one in counts}
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{file} is not a baseline of counts: {error!r}") from error


def write_baseline(file: Path, counts: Mapping[str, Tally]) -> None:
    """Write the counts, without fields that differ from run to run."""
    whole = {"schema": SCHEMA, "counts": {name: tally.as_json() for name, tally in counts.items()}}
    file.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def differences(counts: Mapping[str, Tally], baseline: Mapping[str, Tally]) -> list[str]:
    """Return the differences, one sentence each, increases first."""
    worse: list[str] = []
    better: list[str] = []
    for name, tally in counts.items():
        before = baseline.get(name)
        if before is None:
            better.append(f"{name} has no baseline: {REWRITE}")
            continue
        if before.orders != tally.orders:
            better.append(f"{name} was counted over {before.orders} orders, and now over {tally.orders}: {REWRITE}")
            continue
        for field in GATED:
            old, new = getattr(before, field), getattr(tally, field)
            said = f"{name}: {field.replace('_', ' ')} an order {before.each(field)} -> {tally.each(field)}"
            if new > old:
                worse.append(f"{said}: it went up")
            elif new < old:
                better.append(f"{said}: it went down; {REWRITE}")
    gone = [f"{name} is in the baseline and was not counted: {REWRITE}" for name in baseline if name not in counts]
    return worse + better + gone


# --- what is counted ---

BATCH: Final = 20
MANY: Final = 100
SEGMENTS: Final = 4
STOCK: Final = 4_000_000
"""Large enough that all numbers sent have the same number of digits from the first order to the last."""

BY_WORKERS: Final = frozenset({"celery-one", "celery-batched"})
"""Not counted: these have workers with their own heartbeats and polls, so counts would vary."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a sequence. `prepare` is not counted; `perform` is, and returns the number of lock requests."""

    perform: Callable[[Sequence[Order]], int]
    prepare: Callable[[Sequence[Order]], object] = tuple
    close: Callable[[], object] = tuple


def strategies(url: str) -> Iterator[tuple[str, Steps]]:
    """Yield each strategy without order database and workers, in single orders and, if supported, in batches."""
    for name, strategy in STRATEGIES.items():
        if not strategy.needs_database and name not in BY_WORKERS:
            yield name, _sale(strategy, url, batch=1)
            if strategy.has_batches:
                yield f"{name}, batches of {BATCH}", _sale(strategy, url, batch=BATCH)


def _sale(kind: type[Strategy], url: str, *, batch: int) -> Steps:
    store = RedisStore.from_url(url)  # its own: a store freezes a pool that is opened again under the same name
    context = StrategyContext(
        store=store, engine=None, segments=SEGMENTS, buyers=1, section=Section("none"), batch=batch, url=url
    )
    strategy = kind(context)
    strategy.open("counts", STOCK)

    def sell(orders: Sequence[Order]) -> int:
        attempts = 0
        for first in range(0, len(orders), batch):
            answers = strategy.buy_batch(orders[first : first + batch])
            sold = [answer for answer in answers if isinstance(answer, Sold)]
            if len(sold) != len(answers):
                message = f"{kind.name} sold {len(sold)} of {len(answers)} orders, with units for all of them"
                raise SegmentedError(message)
            attempts += max(answer.attempts for answer in sold)
        return attempts

    def close() -> None:
        strategy.clear()
        strategy.close()
        store.close()

    return Steps(sell, close=close)


def operations(store: RedisStore) -> Iterator[tuple[str, Steps]]:
    """Yield the library's main operations, each on its own pool."""
    one, many, ended, granted, submitted, accepted, worked = (
        _pool(store, f"counts-{letter}", in_the_worker=letter == "g") for letter in "abcdefg"
    )
    yield "Pool.reserve", Steps(lambda orders: _each(one.reserve(order) for order in orders))
    yield f"Pool.reserve_many of {MANY}", Steps(lambda orders: _each(many.reserve_many(orders)))
    yield (
        f"Pool.confirm_many of {MANY}",
        Steps(lambda orders: _each(ended.confirm_many(_ids(orders))), ended.reserve_many),
    )
    yield "Pool.grant, Grant.confirm", Steps(lambda orders: _granted(granted, orders))
    yield "Pool.submit", Steps(lambda orders: _each(submitted.submit(order) for order in orders))
    yield f"take_envelope of {MANY}", Steps(lambda orders: _enveloped(accepted, orders), accepted.submit_many)
    name = f"take_envelope of {MANY}, units taken in the worker"
    yield name, Steps(lambda orders: _enveloped(worked, orders), worked.submit_many)
    yield "Lock.acquire, Lease.release", Steps(lambda orders: _locked(store, orders))


def _pool(store: RedisStore, sku: str, *, in_the_worker: bool) -> Pool:
    pool = Pool(store, sku, outbox=Outbox(decides="in the worker" if in_the_worker else "at acceptance"))
    pool.open(stock=STOCK, segments=SEGMENTS)
    return pool


def _ids(orders: Iterable[Order]) -> list[str]:
    return [order.order_id for order in orders]


def _each(answers: Iterable[Any]) -> int:
    """Consume all answers; raise the first failure. Return 0 lock requests."""
    for answer in answers:
        if isinstance(answer, SegmentedError):
            raise answer
    return 0


def _granted(pool: Pool, orders: Sequence[Order]) -> int:
    for order in orders:
        grant = pool.grant(order)
        if not isinstance(grant, Grant):
            raise SegmentedError(f"order {order.order_id!r}: {grant.describe()}")
        grant.confirm()
    return len(orders)


def _enveloped(pool: Pool, orders: Sequence[Order]) -> int:
    report = take_envelope(pool, _ids(orders))
    if len(report.settled) != len(orders):
        raise SegmentedError(f"an envelope settled {len(report.settled)} of {len(orders)} orders: {report.counts()}")
    return 0


def _locked(store: RedisStore, orders: Sequence[Order]) -> int:
    for order in orders:
        Lock(store, f"counts-{order.order_id}").acquire().release()
    return len(orders)


# --- the command ---

SEED: Final = 1
ROUNDS: Final = (1_000, 2_000)
"""Number of the first order of each round: the first round connects and loads scripts, the second is counted."""


def count(console: Console, *, writes: bool = False, file: Path = BASELINE) -> int:
    """Count everything, and compare with the baseline or write it; return the exit code.

    0: everything equals the baseline, or it was written. 1: there are differences, which are printed. Raises
    InvalidInput for an invalid baseline file.
    """
    before = {} if writes else read_baseline(file)
    counts = measure()
    show(counts, console)
    if writes:
        write_baseline(file, counts)
        say(console, f"{len(counts)} operations written to {file}")
        return 0
    found = differences(counts, before)
    say(console, *(found or [f"all counts of {len(counts)} operations are as in the baseline"]))
    return 1 if found else 0


def show(counts: Mapping[str, Tally], console: Console) -> None:
    """Print the cost of an order; the server's microseconds are shown but not compared."""
    heads = {field: field.replace("_", " ") for field in (*GATED, "server_us")}
    rows = [(name, *(tally.each(field) for field in heads)) for name, tally in counts.items()]
    line = "{}: " + ", ".join(f"{head} {{}}" for head in heads.values())
    show_rows(console, ("an order of", *heads.values()), rows, line.format)


def measure() -> dict[str, Tally]:
    """Start a server, count everything, and stop it. Raises InvalidInput if no server can be started."""
    was, HERE.process = HERE.process, "host:12345"  # so that bytes are the same on every machine
    try:
        with (
            ValkeyServer.start() as server,
            RedisStore.from_url(server.url, clock=ManualClock()) as store,  # nothing is registered twice
            redis.Redis.from_url(server.url) as client,
        ):
            return dict(_counted(store, client, server.url))
    finally:
        HERE.process = was


def _counted(store: RedisStore, client: redis.Redis, url: str) -> Iterator[tuple[str, Tally]]:
    counter = Counter(client)
    for name, steps in chain(strategies(url), operations(store)):
        yield name, _tally(counter, steps)


def _tally(counter: Counter, steps: Steps) -> Tally:
    random.seed(SEED)
    attempts = 0
    try:
        for first in ROUNDS:
            orders = [Order(f"{first + number}", 1) for number in range(MANY)]
            steps.prepare(orders)
            counter.begin()
            attempts = steps.perform(orders)
        return counter.tally(MANY, attempts)
    finally:
        steps.close()

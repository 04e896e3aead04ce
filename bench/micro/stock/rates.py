"""The cost of an order, measured twice: compared with the bare decrement, and by the server's own counts.

The bare conditional decrement is a script of one read and one write, run by the server's benchmark program or ours.
`redis-benchmark` and `valkey-benchmark` are in no wheel; if neither is installed, our own client is used. It is written
in Python and slower, so ratios to it are too good; the figures say which program it was.

Orders per second: calls awaited one by one, and batches of a thousand. The server's cost: time with few and many
segments and orders, memory, and commands when sold out.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from bench.figures import Figure, of_rounds
from bench.micro.locks.cycles import BareSocket
from bench.micro.stock import BATCH, HOLD_MS, STOCK, ScriptCounter, cpu_ms, open_pool, quiet, server_of
from segmented import AsyncPool, AsyncRedisStore, Pool, RedisStore, protocol as op
from segmented.errors import SegmentedError
from segmented.keys import shard_keys
from segmented.models import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import redis

    from bench.micro.stock import BenchContext

OWN_LOOP: Final = "asyncio's own loop"


def event_loops() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return how to make a loop of each kind, by its name; the fastest is the first."""
    found: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {}
    with suppress(ImportError):
        import uvloop  # noqa: PLC0415  # not on every system

        found["uvloop"] = uvloop.new_event_loop
    return found | {OWN_LOOP: asyncio.new_event_loop}


def batches_of(name: str, count: int) -> list[tuple[Order, ...]]:
    """Create orders of one unit, in batches of a thousand."""
    return [
        tuple(Order(f"{name}-{index}", 1) for index in range(first, min(first + BATCH, count)))
        for first in range(0, count, BATCH)
    ]


SCRIPT: Final = (
    "local n = tonumber(redis.call('GET', KEYS[1])) "
    "if n >= tonumber(ARGV[1]) then redis.call('DECRBY', KEYS[1], ARGV[1]) return 1 end return 0"
)
KEY: Final = "bench-bare"
CONNECTIONS: Final = 50
PROGRAMS: Final = ("valkey-benchmark", "redis-benchmark")
OWN: Final = "own client"
SECONDS_MAX: Final = 300
RATE: Final = re.compile(r"([0-9.]+) requests per second")
RECEIVED: Final = 65_536


@dataclass(frozen=True, slots=True)
class Bare:
    """The throughput of the bare decrement."""

    per_second: float
    server_us: float
    """The server's time for a call."""


def program() -> str:
    """Return the name of the program that drives the bare decrement."""
    return next((name for name in PROGRAMS if shutil.which(name)), OWN)


def measure_bare(url: str, client: redis.Redis, calls: int, *, depth: int, by_digest: bool, driver: str) -> Bare:
    """Run `calls` decrements over 50 connections with `depth` requests under way on each."""
    client.set(KEY, 10**12)
    command = ("EVALSHA", str(client.script_load(SCRIPT))) if by_digest else ("EVAL", SCRIPT)
    counter = ScriptCounter(client)
    whole = (*command, "1", KEY, "1")
    rate = _own(url, whole, calls, depth) if driver == OWN else _theirs(driver, url, whole, calls, depth)
    count, used = counter.of("evalsha" if by_digest else "eval")
    client.delete(KEY)
    return Bare(rate, used / max(1, count))


def _theirs(driver: str, url: str, command: tuple[str, ...], calls: int, depth: int) -> float:
    parts = urlsplit(url)
    where = (
        ["-s", parts.path] if parts.scheme == "unix" else ["-h", parts.hostname or "", "-p", str(parts.port or 6379)]
    )
    options = ["-n", str(calls), "-P", str(depth), "-c", str(CONNECTIONS), "-q"]
    said = subprocess.run(  # noqa: S603  # the server's benchmark program, found on the path
        [shutil.which(driver) or driver, *where, *options, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    found = RATE.findall(said.stdout)
    if said.returncode or not found:
        raise SegmentedError(f"{driver} did not measure anything: {(said.stderr or said.stdout).strip()[-200:]}")
    return float(found[-1])


def _own(url: str, command: tuple[str, ...], calls: int, depth: int) -> float:
    pieces = [f"*{len(command)}\r\n", *(f"${len(argument)}\r\n{argument}\r\n" for argument in command)]
    request = "".join(pieces).encode() * depth
    lines = [BareSocket(url).line for _ in range(CONNECTIONS)]
    try:
        rounds = max(1, calls // (depth * CONNECTIONS))
        began = time.perf_counter()
        for _ in range(rounds):
            for line in lines:
                line.sendall(request)
            for line in lines:
                missing = depth
                while missing:
                    missing -= line.recv(RECEIVED).count(b"\n")
        return rounds * depth * CONNECTIONS / (time.perf_counter() - began)
    finally:
        for line in lines:
            line.close()


# --- orders beside it ---

OutcomeT = TypeVar("OutcomeT")

AWAITED_MIN: Final = 1.5
BATCH_MIN: Final = 0.8
BATCH_CPU_MIN: Final = 1.2
DEPTH: Final = 16
AT_LEAST: Final = {
    "reserve awaited / bare EVAL": AWAITED_MIN,
    f"reserve_many / bare at depth {DEPTH}": BATCH_MIN,
    f"confirm_many / bare at depth {DEPTH}": BATCH_MIN,
    f"reserve_many / bare at depth {DEPTH}, by CPU of the server": BATCH_CPU_MIN,
}
"""Ratio -> its least value."""
IN_FLIGHT: Final = 2
SEGMENTS_RATIO_MAX: Final = 1.2
ORDERS_RATIO_MAX: Final = 1.1
BYTES_MAX: Final = 300
COMMANDS_MAX: Final = 2
SAMPLES: Final = 10_000
SEGMENTS: Final = 20
PROBES: Final = 40


@dataclass(frozen=True, slots=True)
class Rate:
    """Orders a second, and the CPU of an order in microseconds: of this process, and of the server's main thread."""

    per_second: float
    client_us: float
    server_us: float


def measure_rates(context: BenchContext) -> list[Figure]:
    """Measure each ratio in each round, from two consecutive measurements."""
    sizes, driver, loops = context.sizes, program(), event_loops()
    fastest = next(iter(loops))
    ratios: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    with server_of(context) as (_, client):
        for number in range(sizes.rounds):
            context.progress("orders a second", number, sizes.rounds)
            for loop, make_loop in loops.items():
                bare = measure_bare(context.url, client, sizes.bare_calls, depth=1, by_digest=False, driver=driver)
                calls = _run(make_loop, _awaited(context, number, client))
                at = "" if loop == fastest else f", on {loop}"
                _note(ratios, f"reserve awaited / bare EVAL{at}", calls.per_second / bare.per_second)
                _note(rates, "bare EVAL, 50 connections", bare.per_second)
                _note_rate(rates, costs, f"reserve awaited by {sizes.callers:,} callers, on {loop}", calls)
            before = cpu_ms(client)
            deep = measure_bare(context.url, client, sizes.bare_calls, depth=DEPTH, by_digest=True, driver=driver)
            deep_us = 1_000 * (cpu_ms(client) - before) / sizes.bare_calls
            _note(rates, f"bare EVALSHA, 50 connections, pipeline depth {DEPTH}", deep.per_second)
            _note(costs, f"bare EVALSHA at depth {DEPTH}: CPU of the server a call", deep_us)
            for name, found in _run(loops[fastest], _batches(context, number, client)).items():
                _note(ratios, f"{name} / bare at depth {DEPTH}", found.per_second / deep.per_second)
                _note(ratios, f"{name} / bare at depth {DEPTH}, by CPU of the server", deep_us / found.server_us)
                _note_rate(rates, costs, f"{name} of 1,000, two under way", found)
    return [
        *(
            of_rounds(name, found, "", at_least=AT_LEAST.get(name), detail={"bare by": driver})
            for name, found in ratios.items()
        ),
        *(of_rounds(name, found, "/s") for name, found in rates.items()),
        *(of_rounds(name, found, "us") for name, found in costs.items()),
    ]


def _note(seen: dict[str, list[float]], name: str, value: float) -> None:
    seen.setdefault(name, []).append(value)


def _note_rate(rates: dict[str, list[float]], costs: dict[str, list[float]], name: str, found: Rate) -> None:
    _note(rates, name, found.per_second)
    _note(costs, f"{name}: CPU of the client an order", found.client_us)
    _note(costs, f"{name}: CPU of the server an order", found.server_us)


def _run(make_loop: Callable[[], asyncio.AbstractEventLoop], coroutine: Coroutine[Any, Any, OutcomeT]) -> OutcomeT:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(coroutine)


async def _awaited(context: BenchContext, number: int, client: redis.Redis) -> Rate:
    """Let many callers await one order after another."""
    sizes = context.sizes
    async with await AsyncRedisStore.from_url(context.url) as store:
        pool = AsyncPool(store, context.sku(f"awaited-{number}"))
        await pool.open(stock=STOCK, segments=SEGMENTS)
        await _warm(store, pool.sku)
        orders = [[Order(f"{caller}-{index}", 1) for index in range(sizes.calls)] for caller in range(sizes.callers)]

        async def call(own: list[Order]) -> None:
            for order in own:
                await pool.reserve(order)

        async def all_calls() -> None:
            await asyncio.gather(*(call(own) for own in orders))

        return await _rate(all_calls, sizes.callers * sizes.calls, client)


async def _batches(context: BenchContext, number: int, client: redis.Redis) -> dict[str, Rate]:
    """Send batches, two at a time: one on the server, one being encoded or read here."""
    sku, count = context.sku(f"batches-{number}"), context.sizes.batch_orders
    async with await AsyncRedisStore.from_url(context.url) as store:
        await store.execute(op.OpenPool(sku, STOCK, SEGMENTS, gated=False))
        await _warm(store, sku)
        orders = batches_of("o", count)
        reserving = [op.ReserveMany(sku, batch, HOLD_MS) for batch in orders]
        confirming = [op.SettleMany(sku, "confirmed", tuple(order.order_id for order in batch)) for batch in orders]
        found = {}
        for name, operations in (("reserve_many", reserving), ("confirm_many", confirming)):
            waiting = iter(operations)

            async def work(waiting: object = waiting) -> None:
                for operation in waiting:  # type: ignore[attr-defined]  # shared: each worker takes the next
                    await store.execute(operation)

            async def all_work(work: Callable[[], Coroutine[Any, Any, None]] = work) -> None:
                await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))

            found[name] = await _rate(all_work, count, client)
        return found


async def _warm(store: AsyncRedisStore, sku: str) -> None:
    """Connect as often as the calls will, and load the scripts."""
    for _ in range(2):
        await asyncio.gather(
            *(store.execute(op.ReserveMany(sku, (Order(f"warm-{place}", 1),), HOLD_MS)) for place in range(IN_FLIGHT))
        )
    await store.execute(op.SettleMany(sku, "confirmed", ("warm-0",)))


async def _rate(act: Callable[[], Coroutine[Any, Any, None]], count: int, client: redis.Redis) -> Rate:
    """Time what takes `count` orders."""
    server, own, began = cpu_ms(client), time.process_time(), time.perf_counter()
    await act()
    seconds, own_seconds = time.perf_counter() - began, time.process_time() - own
    return Rate(count / seconds, 1e6 * own_seconds / count, 1_000 * (cpu_ms(client) - server) / count)


def measure_costs(context: BenchContext) -> list[Figure]:
    """Measure all costs."""
    return [*_by_segments(context), *_by_orders(context), *_when_sold_out(context)]


def _by_segments(context: BenchContext) -> list[Figure]:
    """Compare pools of few and of many segments, in alternating batches."""
    few, many = context.sizes.segment_counts
    with server_of(context) as (store, client):
        skus = {segments: context.sku(f"of-{segments}") for segments in (few, many)}
        for segments, sku in skus.items():
            open_pool(store, sku, segments)
        reserved: dict[int, list[float]] = {few: [], many: []}
        confirmed: dict[int, list[float]] = {few: [], many: []}
        batches = batches_of("o", max(PROBES, context.sizes.batch_orders // BATCH) * BATCH)
        for index, batch in enumerate(batches):
            context.progress("server time by segments", index, len(batches))
            for segments, sku in skus.items():
                reserved[segments].append(_server_us(store, client, op.ReserveMany(sku, batch, HOLD_MS), len(batch)))
                ended = op.SettleMany(sku, "confirmed", tuple(order.order_id for order in batch))
                confirmed[segments].append(_server_us(store, client, ended, len(batch)))
    figures = []
    for name, found in (("reserve_many", reserved), ("confirm_many", confirmed)):
        ratio = quiet(found[many]) / quiet(found[few])
        label = f"{name}: server time, {many} segments / {few}"
        figures.append(Figure(label, ratio, "", at_most=SEGMENTS_RATIO_MAX))
        figures += [_cost(f"{name}: server time an order, {count} segments", found[count]) for count in (few, many)]
    return figures


def _by_orders(context: BenchContext) -> list[Figure]:
    """Fill a pool, compare the server's time per order with that of a small pool alternately, and read its memory."""
    few, many = context.sizes.order_counts
    with server_of(context) as (store, client):
        small, sku = context.sku("small"), context.sku("filled")
        for name, count in ((small, few), (sku, many)):
            open_pool(store, name, SEGMENTS)
            _fill(context, store, name, count)
        at_few: list[float] = []
        at_many: list[float] = []
        for index, batch in enumerate(batches_of("probe", PROBES * BATCH)):
            context.progress("server time by orders", index, PROBES)
            for name, found in ((small, at_few), (sku, at_many)):
                found.append(_server_us(store, client, op.ReserveMany(name, batch, HOLD_MS), len(batch)))
        alone = _ledger_of_single_orders(context, store, client)
        count = store.execute(op.ReadPool(sku)).order_count
        keys = shard_keys(sku)
        live = sum(_bytes(client, key) for key in (keys.orders, keys.holds)) / count
        ledger = _bytes(client, keys.ledger) / count
    ratio = quiet(at_many) / quiet(at_few)
    return [
        Figure(f"reserve_many: server time, {many:,} orders / {few:,}", ratio, "", at_most=ORDERS_RATIO_MAX),
        _cost(f"reserve_many: server time an order, at {few:,} orders", at_few),
        _cost(f"reserve_many: server time an order, at {many:,} orders", at_many),
        Figure("memory of a live order and its hold", live, "bytes", at_most=BYTES_MAX, detail={"orders": count}),
        Figure("memory of its ledger line, in batches of 1,000", ledger, "bytes"),
        Figure("memory of its ledger entry, when reserved alone", alone, "bytes"),
    ]


def _ledger_of_single_orders(context: BenchContext, store: RedisStore, client: redis.Redis) -> float:
    sku = context.sku("single")
    open_pool(store, sku, SEGMENTS)
    (orders,) = batches_of("o", BATCH)
    store.execute_many([op.Reserve(sku, order, HOLD_MS) for order in orders])
    return _bytes(client, shard_keys(sku).ledger) / BATCH


def _fill(context: BenchContext, store: RedisStore, sku: str, count: int) -> None:
    for first in range(0, count, BATCH):
        context.progress(f"filling a pool to {count:,} orders", first, count)
        (batch,) = batches_of(f"o{first}", min(BATCH, count - first))
        store.execute(op.ReserveMany(sku, batch, HOLD_MS))


def _when_sold_out(context: BenchContext) -> list[Figure]:
    """Count the commands for refused orders, without and with the sold-out mark."""
    count = context.sizes.refused
    with server_of(context) as (store, client):
        sku = context.sku("gone")
        plain, marked = Pool(store, sku), Pool(store, sku, sold_out_mark=0.1)
        open_pool(store, sku, SEGMENTS, stock=1)
        counter = ScriptCounter(client)
        for index in range(count):
            plain.reserve(f"plain-{index}")
        sent = counter.of()[0]
        for index in range(count):
            marked.reserve(f"marked-{index}")
        sent_marked = counter.of()[0] - sent
    name = "commands a refused order"
    return [
        Figure(name, sent / count, "", at_most=COMMANDS_MAX, is_promise=True),
        Figure(
            f"{name}, with a sold-out mark of 0.1 s", sent_marked / count, "", at_most=COMMANDS_MAX, is_promise=True
        ),
    ]


def _server_us(store: RedisStore, client: redis.Redis, operation: op.Operation[Any], count: int) -> float:
    """Return the server's microseconds per order of a batch."""
    counter = ScriptCounter(client)
    store.execute(operation)
    return counter.of()[1] / count


def _cost(name: str, found: list[float]) -> Figure:
    return Figure(name, quiet(found), "us", min(found), max(found), detail={"interval": "least and most"})


def _bytes(client: redis.Redis, key: str) -> int:
    found: Any = client.memory_usage(key, samples=SAMPLES)
    return int(found or 0)

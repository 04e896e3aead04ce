"""The cost of an order, measured twice: compared with the bare decrement, and by the server's own counts.

Orders per second: calls awaited one by one, and batches of a thousand. The server's cost: time with few and many
segments and orders, memory, and commands when sold out.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figure, of_rounds
from bench.micro.stock.bare import measure_bare, program
from bench.micro.stock.context import BATCH, HOLD_MS, STOCK, Counter, batches_of, cpu_ms, open_pool, server_of
from segmented import AsyncPool, AsyncRedisStore, Pool, RedisStore, protocol as op
from segmented.keys import shard_keys
from segmented.models import Order

if TYPE_CHECKING:
    import redis

    from bench.micro.stock.context import BenchContext

AWAITED_MIN: Final = 1.5
BATCH_MIN: Final = 0.8
BATCH_CPU_MIN: Final = 1.2
DEPTH: Final = 16
IN_FLIGHT: Final = 2
SEGMENTS_RATIO_MAX: Final = 1.2
ORDERS_RATIO_MAX: Final = 1.1
BYTES_MAX: Final = 300
COMMANDS_MAX: Final = 2
SAMPLES: Final = 10_000
SEGMENTS: Final = 20
PROBES: Final = 40


def measure_rates(context: BenchContext) -> list[Figure]:
    """Measure each ratio in each round, from two consecutive measurements."""
    sizes, driver = context.sizes, program()
    awaited: list[float] = []
    reserved: list[float] = []
    confirmed: list[float] = []
    by_cpu: list[list[float]] = [[], []]
    seen: dict[str, list[float]] = {}
    with server_of(context) as (_, client):
        for number in range(sizes.rounds):
            context.progress("orders a second", number, sizes.rounds)
            bare = measure_bare(context.url, client, sizes.bare_calls, depth=1, by_digest=False, driver=driver)
            calls = asyncio.run(_awaited(context, number))
            before = cpu_ms(client)
            deep = measure_bare(context.url, client, sizes.bare_calls, depth=DEPTH, by_digest=True, driver=driver)
            deep_ms = (cpu_ms(client) - before) / sizes.bare_calls
            (many, many_ms), (sold, sold_ms) = asyncio.run(_batches(context, number, client))
            for found, order_ms in zip(by_cpu, (many_ms, sold_ms), strict=True):
                found.append(deep_ms / order_ms)
            awaited.append(calls / bare.per_second)
            reserved.append(many / deep.per_second)
            confirmed.append(sold / deep.per_second)
            _note(seen, "bare EVAL, 50 connections", bare.per_second)
            _note(seen, f"bare EVALSHA, 50 connections, pipeline depth {DEPTH}", deep.per_second)
            _note(seen, f"reserve awaited by {sizes.callers:,} callers", calls)
            _note(seen, "reserve_many of 1,000, two under way", many)
            _note(seen, "confirm_many of 1,000, two under way", sold)
    return [
        _ratio("reserve awaited / bare EVAL", awaited, AWAITED_MIN, driver),
        _ratio(f"reserve_many / bare at depth {DEPTH}", reserved, BATCH_MIN, driver),
        _ratio(f"confirm_many / bare at depth {DEPTH}", confirmed, BATCH_MIN, driver),
        _ratio(f"reserve_many / bare at depth {DEPTH}, by CPU of the server", by_cpu[0], BATCH_CPU_MIN, driver),
        _ratio(f"confirm_many / bare at depth {DEPTH}, by CPU of the server", by_cpu[1], None, driver),
        *(of_rounds(name, found, "/s") for name, found in seen.items()),
    ]


def _note(seen: dict[str, list[float]], name: str, value: float) -> None:
    seen.setdefault(name, []).append(value)


def _ratio(name: str, found: list[float], at_least: float | None, driver: str) -> Figure:
    return of_rounds(name, found, "", at_least=at_least, detail={"bare by": driver})


async def _awaited(context: BenchContext, number: int) -> float:
    """Let many callers await one order after another."""
    sizes = context.sizes
    async with await AsyncRedisStore.from_url(context.url) as store:
        pool = AsyncPool(store, context.sku(f"awaited-{number}"))
        await pool.open(stock=STOCK, segments=SEGMENTS)
        await pool.reserve("first")
        orders = [[Order(f"{caller}-{index}", 1) for index in range(sizes.calls)] for caller in range(sizes.callers)]

        async def call(own: list[Order]) -> None:
            for order in own:
                await pool.reserve(order)

        began = time.perf_counter()
        await asyncio.gather(*(call(own) for own in orders))
        return sizes.callers * sizes.calls / (time.perf_counter() - began)


async def _batches(context: BenchContext, number: int, client: redis.Redis) -> list[tuple[float, float]]:
    """Send batches, two at a time: one on the server, one being encoded or read here.

    Return for both operations orders a second, and milliseconds of the server's CPU an order.
    """
    sku, count = context.sku(f"batches-{number}"), context.sizes.batch_orders
    async with await AsyncRedisStore.from_url(context.url) as store:
        await store.execute(op.OpenPool(sku, STOCK, SEGMENTS, gated=False))
        orders = batches_of("o", count)
        reserving = [op.ReserveMany(sku, batch, HOLD_MS) for batch in orders]
        confirming = [op.SettleMany(sku, "confirmed", tuple(order.order_id for order in batch)) for batch in orders]
        found = []
        for operations in (reserving, confirming):
            waiting = iter(operations)

            async def work(waiting: object = waiting) -> None:
                for operation in waiting:  # type: ignore[attr-defined]  # shared: each worker takes the next
                    await store.execute(operation)

            before, began = cpu_ms(client), time.perf_counter()
            await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
            rate = count / (time.perf_counter() - began)
            found.append((rate, (cpu_ms(client) - before) / count))
        return found


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
        ratio = _quiet(found[many]) / _quiet(found[few])
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
    ratio = _quiet(at_many) / _quiet(at_few)
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
        counter = Counter(client)
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
    counter = Counter(client)
    store.execute(operation)
    return counter.of()[1] / count


def _quiet(found: list[float]) -> float:
    """Return the lower quartile: the server's clock includes time when another process had its core."""
    return statistics.quantiles(found, n=4)[0]


def _cost(name: str, found: list[float]) -> Figure:
    return Figure(name, _quiet(found), "us", min(found), max(found), detail={"interval": "least and most"})


def _bytes(client: redis.Redis, key: str) -> int:
    found: Any = client.memory_usage(key, samples=SAMPLES)
    return int(found or 0)

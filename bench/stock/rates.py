"""Orders per second compared with the bare decrement: calls awaited one by one, and batches of a thousand."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Final

from bench.locks.figures import Figure
from bench.stock.bare import measure_bare, program
from bench.stock.context import HOLD_MS, STOCK, batches_of, server_of
from segmented import AsyncPool, AsyncRedisStore, protocol as op
from segmented.models import Order

if TYPE_CHECKING:
    from bench.stock.context import BenchContext

AWAITED_MIN: Final = 1.5
BATCH_MIN: Final = 0.8
DEPTH: Final = 16
SEGMENTS: Final = 20
IN_FLIGHT: Final = 2


def measure_rates(context: BenchContext) -> list[Figure]:
    """Measure each ratio in each round, from two consecutive measurements."""
    sizes, driver = context.sizes, program()
    awaited: list[float] = []
    reserved: list[float] = []
    confirmed: list[float] = []
    seen: dict[str, list[float]] = {}
    with server_of(context) as (_, client):
        for number in range(sizes.rounds):
            context.progress("orders a second", number, sizes.rounds)
            bare = measure_bare(context.url, client, sizes.bare_calls, depth=1, by_digest=False, driver=driver)
            calls = asyncio.run(_awaited(context, number))
            deep = measure_bare(context.url, client, sizes.bare_calls, depth=DEPTH, by_digest=True, driver=driver)
            many, sold = asyncio.run(_batches(context, number))
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
        *(Figure(name, statistics.median(found), "/s", min(found), max(found)) for name, found in seen.items()),
    ]


def _note(seen: dict[str, list[float]], name: str, value: float) -> None:
    seen.setdefault(name, []).append(value)


def _ratio(name: str, found: list[float], at_least: float, driver: str) -> Figure:
    detail = {"interval": "least and most of the rounds", "bare by": driver}
    return Figure(name, statistics.median(found), "", min(found), max(found), at_least=at_least, detail=detail)


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


async def _batches(context: BenchContext, number: int) -> tuple[float, float]:
    """Send batches, two at a time: one on the server, one being encoded or read here."""
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

            began = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
            found.append(count / (time.perf_counter() - began))
        return found[0], found[1]

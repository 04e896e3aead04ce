"""The whole benchmark `stock`, on one server.

Here are its shorter parts. A sharded pool: transfers between shards while it sells, and commands when it is sold out.
Grants per second compared with the segments' bound, min(segments, waiting) / hold, and the client's CPU use. A cart of
two skus beside an order of each sku: round trips, and the server's CPU time.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from redis.utils import HIREDIS_AVAILABLE

from bench.figures import Figure, FigureResults, of_rounds
from bench.micro.counts import Counter
from bench.micro.stock import STOCK, BenchContext, ScriptCounter, Sizes, measured_server, open_pool, server_of
from bench.micro.stock.rates import OWN, event_loops, measure_costs, measure_rates, program
from bench.micro.stock.steps import measure_steps
from segmented import AsyncGrant, AsyncPool, AsyncRedisStore, protocol as op
from segmented.clock import ManualClock
from segmented.keys import directory_copy, shard_keys
from segmented.models import Cart, SoldOut
from segmented.stock import Carts, Pool, ShardedPool
from segmented.stock.sharded.opening import COPIES
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from bench.micro.counts import Tally
    from bench.results import Display
    from segmented.models import LedgerEntry
    from segmented.plans.drivers import Store

SHARDS: Final = 6
TRANSFERS_MAX: Final = 0.05
COMMANDS_MAX: Final = 2
EARLY: Final = 0.9
"""The share of the stock that counts as early."""


def measure_shards(context: BenchContext) -> list[Figure]:
    """Sell a sharded pool to its last unit, then refuse more orders."""
    with server_of(context) as (store, client):
        sku = context.sku("in-shards")
        context.skus.pop()  # it has other keys than a pool in one slot
        pool = ShardedPool(store, sku)
        context.progress("selling in shards", 0, 1)
        try:
            count = count_transfers(store, sku, stock=context.sizes.sharded_stock, shards=SHARDS)
            refused = commands_a_refused_order(client, sku, orders=context.sizes.refused)
        finally:
            _remove(client, pool)
    late = (count.transfers - count.early_transfers) / (count.sales - count.early_sales)
    stock = context.sizes.sharded_stock
    detail = {"shards": SHARDS, "stock": stock, "sales": count.sales, "transfers": count.transfers}
    return [
        Figure("transfers an order, until 90 % is sold", count.early_share, "", at_most=TRANSFERS_MAX, is_promise=True),
        Figure("transfers an order, of the last 10 %", late, "", detail=detail),
        Figure("commands a refused order, in shards", refused, "", at_most=COMMANDS_MAX, is_promise=True),
    ]


def commands_a_refused_order(client: redis.Redis, sku: str, *, orders: int) -> float:
    """Refuse orders of a pool that is sold out, by what one order has found in all shards.

    The finding serves for a tenth of a second. The pool's clock stands still, because on a busy machine few orders come
    in that time, and the commands of a new finding would count for each of them.
    """
    pool = ShardedPool(RedisStore(client, clock=ManualClock()), sku)
    pool.reserve("finds out")
    counter = ScriptCounter(client)
    for index in range(orders):
        pool.reserve(f"refused-{index}")
    return counter.of()[0] / orders


def _remove(client: redis.Redis, pool: ShardedPool) -> None:
    keys = [key for shard in pool.shards for key in shard_keys(shard.sku).listed()]
    for shard in pool.shards:
        pool.store.execute(op.DropPool(shard.sku))
    client.unlink(*keys, *(directory_copy(pool.sku, copy) for copy in range(COPIES)))


@dataclass(frozen=True, slots=True)
class TransferCount:
    """Sales and transfers of one run."""

    early_sales: int
    early_transfers: int
    sales: int
    transfers: int

    @property
    def early_share(self) -> float:
        """Transfers per sale until 90 % was sold."""
        return self.early_transfers / self.early_sales


def count_transfers(
    store: Store, sku: str, *, stock: int = 20_000, shards: int = 6, quantity_max: int = 5, seed: int = 1
) -> TransferCount:
    """Sell a new pool in orders of 1 to `quantity_max` units, until a single unit is refused."""
    pool, chance = ShardedPool(store, sku), random.Random(seed)
    pool.open(stock=stock, segments=shards, shards=shards)
    sales = units = number = 0
    early: tuple[int, int] | None = None
    while True:
        number += 1
        quantity = chance.randint(1, quantity_max)
        if isinstance(pool.reserve(f"o{number}", quantity=quantity), SoldOut):
            if quantity == 1:
                break
            continue
        sales, units = sales + 1, units + quantity
        if early is None and units >= EARLY * stock:
            early = sales, transfers_of(pool)
    early_sales, early_transfers = early or (sales, transfers_of(pool))
    return TransferCount(early_sales, early_transfers, sales, transfers_of(pool))


def transfers_of(pool: ShardedPool) -> int:
    """Return the total number of transfers sent by a pool's shards."""
    states = [pool.store.execute(op.ReadPool(shard.sku)) for shard in pool.shards]
    return sum(one.number for state in states for one in state.transfers if one.kind == "sent")


# --- grants ---

SHARE_MIN: Final = 0.97
CLIENT_MAX: Final = 0.8
"""Share of its core above which the client is the bottleneck."""
WAITING: Final = 2
"""Workers per segment: one works, one waits."""
PAGE: Final = 1_000
MICROSECONDS: Final = 1_000_000
TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class GrantRun:
    """One run."""

    share: float
    """Share of the bound, over the middle of the run."""
    per_second: float
    hold_ms: float
    """Mean hold, from reserved to confirmed by the server's clock."""
    client_cpu: float


def measure_grants(context: BenchContext) -> list[Figure]:
    """Measure every hold with every number of segments."""
    figures: list[Figure] = []
    runs = [(hold_ms, lanes) for hold_ms in context.sizes.holds_ms for lanes in context.sizes.lanes]
    with server_of(context):
        for number, (hold_ms, lanes) in enumerate(runs):
            context.progress(f"grants, hold {hold_ms} ms, {lanes} segments", number, len(runs))
            run = asyncio.run(_run(context, hold_ms, lanes))
            name = f"grants, hold {hold_ms} ms, {lanes} segments"
            least = None if run.client_cpu >= CLIENT_MAX else SHARE_MIN
            detail = {"grants_per_s": run.per_second, "mean_hold_ms": run.hold_ms, "client_cpu": run.client_cpu}
            detail["workers"] = WAITING * lanes
            figures.append(Figure(f"{name}: share of the bound", run.share, "", at_least=least, detail=detail))
            figures.append(Figure(f"{name}: client", run.client_cpu, "cores"))
    return figures


async def _run(context: BenchContext, hold_ms: int, lanes: int) -> GrantRun:
    sku = context.sku(f"grants-{hold_ms}-{lanes}")
    async with await AsyncRedisStore.from_url(context.url) as store:
        pool = AsyncPool(store, sku)
        await pool.open(stock=STOCK, segments=lanes)
        ends_at = time.perf_counter() + context.sizes.grant_seconds

        async def work(worker: int) -> None:
            number = 0
            while time.perf_counter() < ends_at:
                number += 1
                grant = await pool.grant(f"{worker}-{number}", timeout=TIMEOUT)
                if isinstance(grant, AsyncGrant):
                    await asyncio.sleep(hold_ms / 1_000)
                    await grant.confirm()

        used, began = time.process_time(), time.perf_counter()
        await asyncio.gather(*(work(worker) for worker in range(WAITING * lanes)))
        cpu = (time.process_time() - used) / (time.perf_counter() - began)
        return _grant_run(await _ledger(store, sku), lanes, cpu)


async def _ledger(store: AsyncRedisStore, sku: str) -> list[LedgerEntry]:
    found: list[LedgerEntry] = []
    after = 0
    while page := await store.execute(op.ReadLedger(sku, after, PAGE)):
        found += page
        after = page[-1].sequence
    return found


def _grant_run(ledger: list[LedgerEntry], lanes: int, cpu: float) -> GrantRun:
    """Fold the ledger: how long orders held segments, as a share of the segments' total time.

    The first and the last tenth are left out, since not all workers are busy then.
    """
    began = {entry.order_id: entry.at_us for entry in ledger if entry.kind == "reserved"}
    spans = [(began[entry.order_id], entry.at_us) for entry in ledger if entry.kind == "confirmed"]
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    margin = (last - first) // 10
    first, last = first + margin, last - margin
    held = sum(max(0, min(end, last) - max(start, first)) for start, end in spans)
    inside = [end - start for start, end in spans if first <= end <= last]
    return GrantRun(
        share=held / (lanes * (last - first)),
        per_second=len(inside) * MICROSECONDS / (last - first),
        hold_ms=sum(inside) / max(1, len(inside)) / 1_000,
        client_cpu=cpu,
    )


# --- carts ---

CART_SEGMENTS: Final = 20
PROBES: Final = 10
"""Times that both are measured, in turn."""
CART: Final = "a cart of two skus"
ORDERS: Final = "an order of each sku"


def measure_carts(context: BenchContext) -> list[Figure]:
    """Reserve and confirm both in turn; the units are the same."""
    each = max(1, context.sizes.refused // PROBES)
    with server_of(context) as (store, client):
        skus = [context.sku(name) for name in ("one", "two")]
        for sku in skus:
            open_pool(store, sku, CART_SEGMENTS)
        pools, carts = [Pool(store, sku) for sku in skus], Carts(store)

        def sell_cart(name: str) -> None:
            cart = Cart(name, [(sku, 1) for sku in skus])
            carts.reserve(cart)
            carts.confirm(name, home=cart.home)

        def sell_orders(name: str) -> None:
            for pool in pools:
                pool.reserve(name)
                pool.confirm(name)

        ways: dict[str, Callable[[str], None]] = {CART: sell_cart, ORDERS: sell_orders}
        for name, sell in ways.items():
            sell(f"{name[:5]}-first")  # loads the scripts
        counter = Counter(client)
        found: dict[str, list[Tally]] = {name: [] for name in ways}
        for probe in range(PROBES):
            context.progress("carts", probe, PROBES)
            for name, sell in ways.items():
                counter.begin()
                for number in range(each):
                    sell(f"{name[:5]}-{probe}-{number}")
                found[name].append(counter.tally(each, 0))
    cart, orders = found[CART], found[ORDERS]
    ratios = [one.server_us / max(1, other.server_us) for one, other in zip(cart, orders, strict=True)]
    return [
        of_rounds(f"{CART} / {ORDERS}: server CPU", ratios, ""),
        *(of_rounds(f"{name}: server CPU", [one.server_us / each for one in found[name]], "us") for name in ways),
        *(
            Figure(f"{name}: round trips", sum(one.round_trips for one in found[name]) / each / PROBES, "")
            for name in ways
        ),
    ]


# --- the whole ---

NAME: Final = "stock"
MEASURED: Final = (measure_rates, measure_costs, measure_carts, measure_steps, measure_shards, measure_grants)


def measure_stock(url: str | None, display: Display, sizes: Sizes | None = None) -> FigureResults:
    """Measure on an embedded server, unless another is named, which no other program may use."""
    with ExitStack() as stack:
        url, found = stack.enter_context(measured_server(url))
        stack.callback(gc.unfreeze)
        gc.collect()
        gc.freeze()  # otherwise each full collection scans all imports during a measurement
        with display.strategy(NAME) as progress:
            context = BenchContext(url, sizes or Sizes(), progress)
            figures = tuple(figure for measure in MEASURED for figure in measure(context))
    parser = "hiredis" if HIREDIS_AVAILABLE else "redis-py's own parsers"
    remarks = [
        f"The bare decrement was driven by {program()}; {found['placement']}.",
        f"Replies were read by {parser}; calls were awaited on {' and on '.join(event_loops())}, batches on the first.",
        "This process called gc.freeze() when it had imported everything, as a service may.",
    ]
    if program() == OWN:
        remarks.append("Ratios to it are too good: that client is written in Python. Install redis-benchmark.")
    return FigureResults(NAME, figures, {**found, "bare_by": program()}, tuple(remarks))

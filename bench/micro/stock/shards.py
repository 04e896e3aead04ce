"""The extra cost of a sharded pool: transfers while it sells, and commands when it is sold out.

How many transfers between shards a pool needs per sale: early in the sale, and to the last unit.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from bench.micro.stock.context import Counter, server_of
from segmented import protocol as op
from segmented.clock import ManualClock
from segmented.keys import directory_keys, shard_keys
from segmented.models import SoldOut
from segmented.stock import ShardedPool
from segmented.stock.sharded.opening import COPIES
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    import redis

    from bench.micro.stock.context import BenchContext
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
    detail = {
        "shards": SHARDS,
        "stock": context.sizes.sharded_stock,
        "sales": count.sales,
        "transfers": count.transfers,
    }
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
    counter = Counter(client)
    for index in range(orders):
        pool.reserve(f"refused-{index}")
    return counter.of()[0] / orders


def _remove(client: redis.Redis, pool: ShardedPool) -> None:
    keys = [key for shard in pool.shards for key in shard_keys(shard.sku).listed()]
    for shard in pool.shards:
        pool.store.execute(op.DropPool(shard.sku))
    client.unlink(*keys, *(directory_keys(pool.sku, copy).directory for copy in range(COPIES)))


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

    def __str__(self) -> str:
        """Return the counts as one line."""
        return (
            f"transfers per sale: {self.early_share:.2%} until {EARLY:.0%} was sold "
            f"({self.early_transfers} of {self.early_sales:,} sales), "
            f"{self.transfers / self.sales:.2%} to the last unit ({self.transfers} of {self.sales:,})"
        )


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

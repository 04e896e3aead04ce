"""The extra cost of a sharded pool: transfers while it sells, and commands when it is sold out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.locks.figures import Figure
from bench.stock.context import Counter, server_of
from bench.stock.transfers import count_transfers
from segmented import ShardedPool
from segmented.keys import directory_keys, shard_keys
from segmented.stock.sharded.opening import COPIES

if TYPE_CHECKING:
    import redis

    from bench.stock.context import BenchContext

SHARDS: Final = 6
TRANSFERS_MAX: Final = 0.05
COMMANDS_MAX: Final = 2


def measure_shards(context: BenchContext) -> list[Figure]:
    """Sell a sharded pool to its last unit, then refuse more orders."""
    with server_of(context) as (store, client):
        sku = context.sku("in-shards")
        context.skus.pop()  # it has other keys than a pool in one slot
        pool = ShardedPool(store, sku)
        context.progress("selling in shards", 0, 1)
        try:
            count = count_transfers(store, sku, stock=context.sizes.sharded_stock, shards=SHARDS)
            counter = Counter(client)
            for index in range(context.sizes.refused):
                pool.reserve(f"refused-{index}")
            refused = counter.of()[0] / context.sizes.refused
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
        Figure("transfers a sale, until 90 % is sold", count.early_share, "", at_most=TRANSFERS_MAX, is_promise=True),
        Figure("transfers a sale, of the last 10 %", late, "", detail=detail),
        Figure("commands a refused order, in shards", refused, "", at_most=COMMANDS_MAX, is_promise=True),
    ]


def _remove(client: redis.Redis, pool: ShardedPool) -> None:
    keys = [key for shard in pool.shards for key in shard_keys(shard.sku).listed()]
    client.unlink(*keys, *(directory_keys(pool.sku, copy).directory for copy in range(COPIES)))

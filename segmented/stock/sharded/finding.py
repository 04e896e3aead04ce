"""Find a pool by its sku, whether it is in shards or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.models import checked_pool_name
from segmented.plans import run_async, run_sync
from segmented.stock.async_pool import AsyncPool
from segmented.stock.pool import Pool
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL
from segmented.stock.sharded.async_pool import AsyncShardedPool
from segmented.stock.sharded.opening import is_in_shards_plan
from segmented.stock.sharded.pool import ShardedPool

if TYPE_CHECKING:
    from segmented.clock import Duration
    from segmented.plans.drivers import AsyncStore, Store


def find_pool(
    store: Store, sku: str, *, ttl: Duration = DEFAULT_TTL, hold: Duration = DEFAULT_HOLD, sold_out_mark: Duration = 0.0
) -> Pool | ShardedPool:
    """Return the pool of a sku in the form in which it was opened, for one command; a `Pool` if none was opened.

    The parameters are those of `Pool`. Raises StoreUnavailable when no server that would know answers.
    """
    pool = Pool(store, sku, ttl=ttl, hold=hold, sold_out_mark=sold_out_mark)
    if run_sync(is_in_shards_plan(pool.sku), store):
        return ShardedPool(store, sku, ttl=ttl, hold=hold, sold_out_mark=sold_out_mark)
    return pool


async def async_find_pool(
    store: AsyncStore,
    sku: str,
    *,
    ttl: Duration = DEFAULT_TTL,
    hold: Duration = DEFAULT_HOLD,
    sold_out_mark: Duration = 0.0,
) -> AsyncPool | AsyncShardedPool:
    """Return the pool of a sku in the form in which it was opened; the asyncio twin of `find_pool`."""
    pool = AsyncPool(store, sku, ttl=ttl, hold=hold, sold_out_mark=sold_out_mark)
    if await run_async(is_in_shards_plan(pool.sku), store):
        return AsyncShardedPool(store, sku, ttl=ttl, hold=hold, sold_out_mark=sold_out_mark)
    return pool


def pool_of(store: Store, sku: str, *, ttl: Duration = DEFAULT_TTL, hold: Duration = DEFAULT_HOLD) -> Pool:
    """Return the pool of a worker's message or of the list of outboxes: that of a sku, or one shard.

    Sends no command and opens nothing: later calls raise PoolMissing, or ShardVanished for a shard, if it does not
    exist. Raises InvalidInput for a text that is neither a sku nor a shard's name.
    """
    return Pool(store, checked_pool_name(sku), ttl=ttl, hold=hold)

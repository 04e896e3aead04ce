"""Pools in shards: one sku over several hash slots, for the masters of a cluster to share."""

from segmented.stock.sharded.async_pool import AsyncShardedPool
from segmented.stock.sharded.audit import ShardedAuditReport
from segmented.stock.sharded.finding import find_async_pool, find_pool, pool_of
from segmented.stock.sharded.pool import ShardedPool
from segmented.stock.sharded.repair import ShardedRepairReport

__all__ = [
    "AsyncShardedPool",
    "ShardedAuditReport",
    "ShardedPool",
    "ShardedRepairReport",
    "find_async_pool",
    "find_pool",
    "pool_of",
]

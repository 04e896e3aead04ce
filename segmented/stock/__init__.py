"""Stock pools: units split over segments, each guarded by its own lock."""

from segmented.stock.async_pool import AsyncGrant, AsyncPool
from segmented.stock.audit import AuditReport, Drift
from segmented.stock.carts import AsyncCarts, Carts
from segmented.stock.fold import LedgerFold
from segmented.stock.pool import Grant, Pool
from segmented.stock.repair import Repair, RepairReport
from segmented.stock.sharded import AsyncShardedPool, ShardedAuditReport, ShardedPool, find_async_pool, find_pool

__all__ = [
    "AsyncCarts",
    "AsyncGrant",
    "AsyncPool",
    "AsyncShardedPool",
    "AuditReport",
    "Carts",
    "Drift",
    "Grant",
    "LedgerFold",
    "Pool",
    "Repair",
    "RepairReport",
    "ShardedAuditReport",
    "ShardedPool",
    "find_async_pool",
    "find_pool",
]

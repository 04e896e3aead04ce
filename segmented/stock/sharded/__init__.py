"""Pools in shards: one sku over several hash slots, for the masters of a cluster to share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
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

LATE: Final = from_modules(
    {
        "segmented.stock.sharded.async_pool": "AsyncShardedPool",
        "segmented.stock.sharded.audit": "ShardedAuditReport",
        "segmented.stock.sharded.finding": "find_async_pool find_pool pool_of",
        "segmented.stock.sharded.pool": "ShardedPool",
        "segmented.stock.sharded.repair": "ShardedRepairReport",
    }
)
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)

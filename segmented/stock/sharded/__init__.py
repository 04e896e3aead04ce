"""Pools in shards: one sku split over several hash slots, so that a cluster's masters share its load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.stock.sharded.async_pool import AsyncShardedPool as AsyncShardedPool
    from segmented.stock.sharded.audit import (
        ShardedAuditReport as ShardedAuditReport,
        ShardedRepairReport as ShardedRepairReport,
    )
    from segmented.stock.sharded.finding import (
        async_find_pool as async_find_pool,
        find_pool as find_pool,
        pool_of as pool_of,
    )
    from segmented.stock.sharded.pool import ShardedPool as ShardedPool

LATE: Final = from_modules(
    {
        "segmented.stock.sharded.async_pool": "AsyncShardedPool",
        "segmented.stock.sharded.audit": "ShardedAuditReport ShardedRepairReport",
        "segmented.stock.sharded.finding": "async_find_pool find_pool pool_of",
        "segmented.stock.sharded.pool": "ShardedPool",
    }
)
"""Names imported on first use, and the modules that define them."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)

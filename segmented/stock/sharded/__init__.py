"""Pools in shards: one sku split over several hash slots, so that a cluster's masters share its load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.stock.sharded.async_pool import (
        AsyncShardedPool as AsyncShardedPool,
        async_find_pool as async_find_pool,
    )
    from segmented.stock.sharded.audit import (
        ShardedAuditReport as ShardedAuditReport,
        ShardedRepairReport as ShardedRepairReport,
    )
    from segmented.stock.sharded.pool import ShardedPool as ShardedPool, find_pool as find_pool, pool_of as pool_of

LATE: Final = from_modules(
    {
        "segmented.stock.sharded.async_pool": "AsyncShardedPool async_find_pool",
        "segmented.stock.sharded.audit": "ShardedAuditReport ShardedRepairReport",
        "segmented.stock.sharded.pool": "ShardedPool find_pool pool_of",
    }
)
"""Names imported on first use, and the modules that define them."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)

"""Stock pools: units split over segments, each guarded by its own lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.errors import PoolArchived
    from segmented.models import Cart, CartDecided, CartRefused, CartReserved, CartSettled, Superseded
    from segmented.models.archives import Archived
    from segmented.stock.archiving import ArchiveTarget, FileArchive, archive, async_archive
    from segmented.stock.async_pool import AsyncGrant, AsyncPool
    from segmented.stock.audit import AuditReport, Drift
    from segmented.stock.carts import AsyncCarts, Carts
    from segmented.stock.fold import LedgerFold
    from segmented.stock.order_handle import AsyncOrderHandle, OrderHandle
    from segmented.stock.outbox import Outbox, Publisher
    from segmented.stock.pool import Grant, Pool
    from segmented.stock.publishing import EnvelopePublisher
    from segmented.stock.repair import Repair, RepairReport
    from segmented.stock.sharded import (
        AsyncShardedPool,
        ShardedAuditReport,
        ShardedPool,
        async_find_pool,
        find_pool,
        pool_of,
    )

__all__ = [
    "ArchiveTarget",
    "Archived",
    "AsyncCarts",
    "AsyncGrant",
    "AsyncOrderHandle",
    "AsyncPool",
    "AsyncShardedPool",
    "AuditReport",
    "Cart",
    "CartDecided",
    "CartRefused",
    "CartReserved",
    "CartSettled",
    "Carts",
    "Drift",
    "EnvelopePublisher",
    "FileArchive",
    "Grant",
    "LedgerFold",
    "OrderHandle",
    "Outbox",
    "Pool",
    "PoolArchived",
    "Publisher",
    "Repair",
    "RepairReport",
    "ShardedAuditReport",
    "ShardedPool",
    "Superseded",
    "archive",
    "async_archive",
    "async_find_pool",
    "find_pool",
    "pool_of",
]

LATE: Final = from_modules(
    {
        "segmented.models": "Cart CartDecided CartRefused CartReserved CartSettled Superseded",
        "segmented.errors": "PoolArchived",
        "segmented.models.archives": "Archived",
        "segmented.stock.archiving": "ArchiveTarget FileArchive archive async_archive",
        "segmented.stock.async_pool": "AsyncGrant AsyncPool",
        "segmented.stock.audit": "AuditReport Drift",
        "segmented.stock.carts": "AsyncCarts Carts",
        "segmented.stock.fold": "LedgerFold",
        "segmented.stock.order_handle": "AsyncOrderHandle OrderHandle",
        "segmented.stock.outbox": "Outbox Publisher",
        "segmented.stock.pool": "Grant Pool",
        "segmented.stock.publishing": "EnvelopePublisher",
        "segmented.stock.repair": "Repair RepairReport",
        "segmented.stock.sharded": (
            "AsyncShardedPool ShardedAuditReport ShardedPool async_find_pool find_pool pool_of"
        ),
    }
)
"""Names imported on first use, and the modules that define them."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any other name
    __getattr__, __dir__ = late(__name__, LATE)

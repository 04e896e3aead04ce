"""Stock pools: units split over segments, each guarded by its own lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.errors import PoolArchived as PoolArchived
    from segmented.models import (
        Cart as Cart,
        CartDecided as CartDecided,
        CartRefused as CartRefused,
        CartReserved as CartReserved,
        CartSettled as CartSettled,
        Superseded as Superseded,
    )
    from segmented.models.pools import Archived as Archived, Deleted as Deleted
    from segmented.stock.archiving import (
        FileArchive as FileArchive,
        archive as archive,
        async_archive as async_archive,
        async_delete as async_delete,
        delete as delete,
    )
    from segmented.stock.async_pool import AsyncPool as AsyncPool
    from segmented.stock.audit import AuditReport as AuditReport, Drift as Drift
    from segmented.stock.carts import AsyncCarts as AsyncCarts, Carts as Carts
    from segmented.stock.fold import LedgerFold as LedgerFold
    from segmented.stock.grant import AsyncGrant as AsyncGrant, Grant as Grant
    from segmented.stock.order_handle import AsyncOrderHandle as AsyncOrderHandle, OrderHandle as OrderHandle
    from segmented.stock.outbox import EnvelopePublisher as EnvelopePublisher, Outbox as Outbox, Publisher as Publisher
    from segmented.stock.pool import Pool as Pool
    from segmented.stock.repair import Repair as Repair, RepairReport as RepairReport
    from segmented.stock.sharded.async_pool import (
        AsyncShardedPool as AsyncShardedPool,
        async_find_pool as async_find_pool,
    )
    from segmented.stock.sharded.audit import ShardedAuditReport as ShardedAuditReport
    from segmented.stock.sharded.pool import ShardedPool as ShardedPool, find_pool as find_pool, pool_of as pool_of

LATE: Final = from_modules(
    {
        "segmented.models": "Cart CartDecided CartRefused CartReserved CartSettled Superseded",
        "segmented.errors": "PoolArchived",
        "segmented.models.pools": "Archived Deleted",
        "segmented.stock.archiving": "FileArchive archive async_archive async_delete delete",
        "segmented.stock.async_pool": "AsyncPool",
        "segmented.stock.audit": "AuditReport Drift",
        "segmented.stock.carts": "AsyncCarts Carts",
        "segmented.stock.fold": "LedgerFold",
        "segmented.stock.order_handle": "AsyncOrderHandle OrderHandle",
        "segmented.stock.outbox": "EnvelopePublisher Outbox Publisher",
        "segmented.stock.grant": "AsyncGrant Grant",
        "segmented.stock.pool": "Pool",
        "segmented.stock.repair": "Repair RepairReport",
        "segmented.stock.sharded.async_pool": "AsyncShardedPool async_find_pool",
        "segmented.stock.sharded.audit": "ShardedAuditReport",
        "segmented.stock.sharded.pool": "ShardedPool find_pool pool_of",
    }
)
"""Names imported on first use, and the modules that define them."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)

"""Stock pools: units split over segments, each guarded by its own lock."""

from segmented.stock.async_grant import AsyncGrant
from segmented.stock.async_pool import AsyncPool
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
    find_async_pool,
    find_pool,
    pool_of,
)

__all__ = [
    "AsyncCarts",
    "AsyncGrant",
    "AsyncOrderHandle",
    "AsyncPool",
    "AsyncShardedPool",
    "AuditReport",
    "Carts",
    "Drift",
    "EnvelopePublisher",
    "Grant",
    "LedgerFold",
    "OrderHandle",
    "Outbox",
    "Pool",
    "Publisher",
    "Repair",
    "RepairReport",
    "ShardedAuditReport",
    "ShardedPool",
    "find_async_pool",
    "find_pool",
    "pool_of",
]

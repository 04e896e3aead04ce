"""Stock pools: units split over segments, each guarded by its own lock."""

from segmented.stock.async_pool import AsyncGrant, AsyncPool
from segmented.stock.audit import AuditReport, Drift
from segmented.stock.carts import AsyncCarts, Carts
from segmented.stock.fold import LedgerFold
from segmented.stock.pool import Grant, Pool
from segmented.stock.repair import Repair, RepairReport

__all__ = [
    "AsyncCarts",
    "AsyncGrant",
    "AsyncPool",
    "AuditReport",
    "Carts",
    "Drift",
    "Grant",
    "LedgerFold",
    "Pool",
    "Repair",
    "RepairReport",
]

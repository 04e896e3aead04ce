"""Stock pools: units split over segments, each guarded by its own lock."""

from segmented.stock.async_pool import AsyncGrant, AsyncPool
from segmented.stock.audit import AuditReport, Drift
from segmented.stock.fold import LedgerFold
from segmented.stock.pool import Grant, Pool

__all__ = ["AsyncGrant", "AsyncPool", "AuditReport", "Drift", "Grant", "LedgerFold", "Pool"]

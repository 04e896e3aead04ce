"""Segment locks, fencing and a durable gate: sell a limited stock without ever selling a unit twice."""

from segmented.errors import (
    AcquireTimeout,
    InvalidInput,
    LeaseLost,
    NotGranted,
    OrderMismatch,
    PoolMissing,
    SegmentedError,
)
from segmented.locks import AsyncLease, AsyncLock, Lease, Lock
from segmented.models import Busy, Order, Reserved, Settled, SoldOut
from segmented.stock import AsyncGrant, AsyncPool, AuditReport, Grant, Pool
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from segmented.stores.redis import AsyncRedisStore, RedisStore

__all__ = [  # noqa: RUF022  # grouped by what a reader looks for
    # where operations run
    "AsyncMemoryStore",
    "AsyncRedisStore",
    "MemoryStore",
    "RedisStore",
    # locks
    "AsyncLease",
    "AsyncLock",
    "Lease",
    "Lock",
    # stock
    "AsyncGrant",
    "AsyncPool",
    "AuditReport",
    "Grant",
    "Pool",
    # orders and answers
    "Busy",
    "Order",
    "Reserved",
    "Settled",
    "SoldOut",
    # errors
    "AcquireTimeout",
    "InvalidInput",
    "LeaseLost",
    "NotGranted",
    "OrderMismatch",
    "PoolMissing",
    "SegmentedError",
]

"""Segment locks, fencing and a durable gate: sell a limited stock without ever selling a unit twice.

This package has the names that most programs need. `segmented.locks`, `.stock`, `.orders`, `.dedup`, `.errors`,
`.models` and `.testing` have the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.dedup import AsyncDedup, Dedup, ExternalEffect
    from segmented.errors import (
        AcquireTimeout,
        AlreadySettled,
        InvalidInput,
        LeaseLost,
        NotGranted,
        OrderMismatch,
        SegmentedError,
        StoreUnavailable,
    )
    from segmented.locks import (
        AsyncFairLock,
        AsyncLease,
        AsyncLock,
        AsyncReadWriteLock,
        AsyncReentrantLock,
        AsyncSemaphore,
        FairLock,
        Lease,
        Lock,
        ReadWriteLock,
        ReentrantLock,
        Semaphore,
        fenced_where,
        locked,
        single_flight,
    )
    from segmented.models import Busy, Closed, Decided, LimitReached, Order, PoolState, Reserved, Settled, SoldOut
    from segmented.orders import AsyncGate as AsyncGate, Gate as Gate
    from segmented.stock import AsyncGrant, AsyncPool, Grant, Outbox, Pool
    from segmented.stores.memory import AsyncMemoryStore, MemoryStore
    from segmented.stores.redis import AsyncRedisStore, RedisStore

__version__ = "0.3.0"

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
    "AsyncReentrantLock",
    "ReentrantLock",
    "AsyncFairLock",
    "FairLock",
    "AsyncSemaphore",
    "Semaphore",
    "AsyncReadWriteLock",
    "ReadWriteLock",
    "fenced_where",
    "locked",
    # a sale, with its order database (Gate), and orders submitted to workers
    "AsyncGrant",
    "AsyncPool",
    "Grant",
    "Order",
    "Outbox",
    "Pool",
    "PoolState",
    # answers of a sale
    "Busy",
    "Closed",
    "Decided",
    "LimitReached",
    "Reserved",
    "Settled",
    "SoldOut",
    # calls that are run once
    "AsyncDedup",
    "Dedup",
    "ExternalEffect",
    "single_flight",
    # errors
    "AcquireTimeout",
    "AlreadySettled",
    "InvalidInput",
    "LeaseLost",
    "NotGranted",
    "OrderMismatch",
    "SegmentedError",
    "StoreUnavailable",
]

LATE: Final = from_modules(
    {
        "segmented.dedup": "AsyncDedup Dedup ExternalEffect",
        "segmented.errors": (
            "AcquireTimeout AlreadySettled InvalidInput LeaseLost NotGranted OrderMismatch SegmentedError "
            "StoreUnavailable"
        ),
        "segmented.locks": (
            "AsyncFairLock AsyncLease AsyncLock AsyncReadWriteLock AsyncReentrantLock AsyncSemaphore FairLock Lease "
            "Lock ReadWriteLock ReentrantLock Semaphore fenced_where locked single_flight"
        ),
        "segmented.models": "Busy Closed Decided LimitReached Order PoolState Reserved Settled SoldOut",
        "segmented.orders": "AsyncGate Gate",
        "segmented.stock": "AsyncGrant AsyncPool Grant Outbox Pool",
        "segmented.stores.memory": "AsyncMemoryStore MemoryStore",
        "segmented.stores.redis": "AsyncRedisStore RedisStore",
    }
)
"""The module of each name, imported at its first use. `Gate` needs the extra `orders`, so `import *` leaves it out."""
AREAS: Final = tuple(
    f"segmented.{area}" for area in ("locks", "stock", "orders", "dedup", "errors", "models", "testing")
)
"""The packages of all other names: an error for a name that is not here says which of them has it."""

if not TYPE_CHECKING:  # otherwise every name would exist for a type checker
    __getattr__, __dir__ = late(__name__, LATE, AREAS)

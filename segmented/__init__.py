"""Segment locks, fencing and a durable gate: sell a limited stock without ever selling a unit twice.

This package has the names that most programs need. `segmented.locks`, `.stock`, `.orders`, `.dedup`, `.errors`,
`.models` and `.testing` have the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.dedup import AsyncDedup as AsyncDedup, Dedup as Dedup
    from segmented.errors import (
        AcquireTimeout as AcquireTimeout,
        AlreadySettled as AlreadySettled,
        InvalidInput as InvalidInput,
        LeaseLost as LeaseLost,
        NotGranted as NotGranted,
        OrderMismatch as OrderMismatch,
        SegmentedError as SegmentedError,
        StoreUnavailable as StoreUnavailable,
    )
    from segmented.locks import (
        AsyncFairLock as AsyncFairLock,
        AsyncLease as AsyncLease,
        AsyncLock as AsyncLock,
        AsyncReadWriteLock as AsyncReadWriteLock,
        AsyncReentrantLock as AsyncReentrantLock,
        AsyncSemaphore as AsyncSemaphore,
        FairLock as FairLock,
        Lease as Lease,
        Lock as Lock,
        ReadWriteLock as ReadWriteLock,
        ReentrantLock as ReentrantLock,
        Semaphore as Semaphore,
        fenced_where as fenced_where,
        locked as locked,
        single_flight as single_flight,
    )
    from segmented.models import (
        Busy as Busy,
        Closed as Closed,
        Decided as Decided,
        LimitReached as LimitReached,
        Order as Order,
        PoolState as PoolState,
        Reserved as Reserved,
        Settled as Settled,
        SoldOut as SoldOut,
    )
    from segmented.orders import AsyncGate as AsyncGate, Gate as Gate
    from segmented.stock import (
        AsyncGrant as AsyncGrant,
        AsyncPool as AsyncPool,
        Grant as Grant,
        Outbox as Outbox,
        Pool as Pool,
    )
    from segmented.stores.memory import AsyncMemoryStore as AsyncMemoryStore, MemoryStore as MemoryStore
    from segmented.stores.redis import AsyncRedisStore as AsyncRedisStore, RedisStore as RedisStore

__version__ = "0.3.0"

LATE: Final = from_modules(
    {
        "segmented.dedup": "AsyncDedup Dedup",
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

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE, AREAS)
    __all__ = [name for name in __all__ if name not in {"AsyncGate", "Gate"}]

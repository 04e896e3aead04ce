"""Segment locks, fencing and a durable gate: sell a limited stock without ever selling a unit twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from segmented import locks
from segmented.errors import (
    AcquireTimeout,
    CartMismatch,
    InvalidInput,
    LeaseLost,
    LoaderFailed,
    LockUnreachable,
    NotGranted,
    OrderMismatch,
    PartlyReleased,
    PermitsMismatch,
    PoolDrifted,
    PoolMissing,
    SegmentedError,
    StaleToken,
)
from segmented.locks import (
    AsyncFairLock,
    AsyncGetSetLease,
    AsyncGetSetLock,
    AsyncLease,
    AsyncLock,
    AsyncMultiLease,
    AsyncMultiLock,
    AsyncQuorumLease,
    AsyncQuorumLock,
    AsyncReadWriteLock,
    AsyncReentrantLock,
    AsyncSemaphore,
    AsyncSingleFlight,
    AsyncZooKeeperLease,
    AsyncZooKeeperLock,
    FairLock,
    FenceGuard,
    FileDeadLetters,
    FlightOptions,
    GetSetLease,
    GetSetLock,
    Lease,
    Lock,
    MultiLease,
    MultiLock,
    QuorumLease,
    QuorumLock,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    Sequencer,
    SingleFlight,
    UnreachablePolicy,
    Work,
    ZooKeeperLease,
    ZooKeeperLock,
    fenced_set,
    fenced_set_async,
    fenced_where,
    key_for,
    lockable,
    single_flight,
    task_owner,
    thread_owner,
)
from segmented.models import Busy, Cart, CartRefused, CartReserved, CartSettled, Order, Reserved, Settled, SoldOut
from segmented.stock import AsyncCarts, AsyncGrant, AsyncPool, AuditReport, Carts, Grant, Pool, RepairReport
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from segmented.stores.quorum import AsyncQuorumStore, QuorumStore
from segmented.stores.redis import AsyncRedisStore, RedisStore

if TYPE_CHECKING:
    from segmented.locks import (
        AsyncSqlRowLock,
        HeldRow,
        SqlDeadLetters,
        SqlRowLock,
        async_create_lock_table,
        create_lock_table,
    )

__all__ = [  # noqa: RUF022  # grouped by what a reader looks for
    # where operations run
    "AsyncMemoryStore",
    "AsyncQuorumStore",
    "AsyncRedisStore",
    "MemoryStore",
    "QuorumStore",
    "RedisStore",
    # locks
    "AsyncLease",
    "AsyncLock",
    "Lease",
    "Lock",
    "AsyncReentrantLock",
    "ReentrantLock",
    "task_owner",
    "thread_owner",
    "AsyncFairLock",
    "FairLock",
    "AsyncZooKeeperLease",
    "AsyncZooKeeperLock",
    "ZooKeeperLease",
    "ZooKeeperLock",
    "AsyncMultiLease",
    "AsyncMultiLock",
    "AsyncReadWriteLock",
    "AsyncSemaphore",
    "MultiLease",
    "MultiLock",
    "ReadWriteLock",
    "Semaphore",
    "AsyncQuorumLease",
    "AsyncQuorumLock",
    "QuorumLease",
    "QuorumLock",
    # what a resource checks
    "FenceGuard",
    "Sequencer",
    "fenced_set",
    "fenced_set_async",
    "fenced_where",
    # locks around functions, and values computed once
    "AsyncSingleFlight",
    "FlightOptions",
    "SingleFlight",
    "key_for",
    "lockable",
    "single_flight",
    # when Redis cannot be reached
    "FileDeadLetters",
    "SqlDeadLetters",
    "UnreachablePolicy",
    "Work",
    # locks in a database's rows
    "AsyncSqlRowLock",
    "HeldRow",
    "SqlRowLock",
    "async_create_lock_table",
    "create_lock_table",
    # locks, historical
    "AsyncGetSetLease",
    "AsyncGetSetLock",
    "GetSetLease",
    "GetSetLock",
    # stock
    "AsyncCarts",
    "AsyncGrant",
    "AsyncPool",
    "AuditReport",
    "Carts",
    "Grant",
    "Pool",
    # orders and answers
    "Busy",
    "Cart",
    "CartRefused",
    "CartReserved",
    "CartSettled",
    "Order",
    "RepairReport",
    "Reserved",
    "Settled",
    "SoldOut",
    # errors
    "AcquireTimeout",
    "CartMismatch",
    "InvalidInput",
    "LeaseLost",
    "LoaderFailed",
    "LockUnreachable",
    "NotGranted",
    "OrderMismatch",
    "PartlyReleased",
    "PermitsMismatch",
    "PoolDrifted",
    "PoolMissing",
    "SegmentedError",
    "StaleToken",
]

if not TYPE_CHECKING:  # for a type checker every other name would exist, too

    def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever the name stands for
        if name in locks.LATE:
            return getattr(locks, name)
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)

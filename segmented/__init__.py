"""Segment locks, fencing and a durable gate: sell a limited stock without ever selling a unit twice.

This package has the names that most programs need. `segmented.locks`, `.stock`, `.orders`, `.dedup`, `.errors` and
`.models` have the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.dedup import AsyncDedup, Dedup, InFlight, OtherPayload
    from segmented.errors import (
        AcquireTimeout,
        InvalidInput,
        LeaseLost,
        NotGranted,
        PoolMissing,
        SegmentedError,
        StoreUnavailable,
    )
    from segmented.locks import (
        AsyncFairLock,
        AsyncLease,
        AsyncLock,
        AsyncMultiLock,
        AsyncReadWriteLock,
        AsyncReentrantLock,
        AsyncSemaphore,
        FairLock,
        Lease,
        Lock,
        MultiLock,
        ReadWriteLock,
        ReentrantLock,
        Semaphore,
        lockable,
        single_flight,
    )
    from segmented.models import Busy, Closed, Decided, LimitReached, Order, Reserved, Settled, SoldOut
    from segmented.stock import AsyncGrant, AsyncPool, Grant, Outbox, Pool
    from segmented.stores.memory import AsyncMemoryStore, MemoryStore
    from segmented.stores.redis import AsyncRedisStore, RedisStore

__version__ = "0.2.0"

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
    "AsyncReadWriteLock",
    "ReadWriteLock",
    "AsyncSemaphore",
    "Semaphore",
    "AsyncMultiLock",
    "MultiLock",
    # locks around functions, and values computed once
    "lockable",
    "single_flight",
    # stock, and orders submitted to workers
    "AsyncGrant",
    "AsyncPool",
    "Grant",
    "Order",
    "Outbox",
    "Pool",
    # answers of grant, reserve, confirm and cancel
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
    # errors
    "AcquireTimeout",
    "AlreadySettled",
    "InFlight",
    "InvalidInput",
    "LeaseLost",
    "NotGranted",
    "OtherPayload",
    "PoolMissing",
    "SegmentedError",
    "StoreUnavailable",
]

LATE: Final = from_modules(
    {
        "segmented.dedup": "AsyncDedup Dedup InFlight OtherPayload",
        "segmented.errors": (
            "AcquireTimeout AlreadySettled InvalidInput LeaseLost NotGranted PoolMissing SegmentedError "
            "StoreUnavailable"
        ),
        "segmented.locks": (
            "AsyncFairLock AsyncLease AsyncLock AsyncMultiLock AsyncReadWriteLock AsyncReentrantLock AsyncSemaphore "
            "FairLock Lease Lock MultiLock ReadWriteLock ReentrantLock Semaphore lockable single_flight"
        ),
        "segmented.models": "Busy Closed Decided LimitReached Order Reserved Settled SoldOut",
        "segmented.stock": "AsyncGrant AsyncPool Grant Outbox Pool",
        "segmented.stores.memory": "AsyncMemoryStore MemoryStore",
        "segmented.stores.redis": "AsyncRedisStore RedisStore",
    }
)
"""The module of each name, imported at its first use."""

MOVED: Final = from_modules(
    {
        "segmented.dedup": (
            "AlreadyDone AsyncExternalEffect AsyncRun AttemptSuperseded CallCancelled DedupError Done EffectUnknown "
            "ExternalEffect FailedBefore NotDone OnceTable Replay ResultUnkept Run RunLost StillUnknown StoreEffect"
        ),
        "segmented.errors": (
            "CartDiverged CartMismatch CartUnknown ChangeDiverged ChangeGated ChangeMismatch DatabaseUnavailable "
            "GrantSuperseded LeaseError LoaderFailed LockUnreachable OrderMismatch OrderQueued OrderUnknown "
            "PartlyReleased PermitsMismatch PoolDiverged PoolDrifted PoolGated PoolInShards PoolNotGated "
            "PoolVanished ReplicasMissing ShardVanished StaleToken StockError StoreBusy StoreError StoreRefused "
            "TransactionConflict WrongKind"
        ),
        "segmented.locks": (
            "AsyncGetSetLease AsyncGetSetLock AsyncMultiLease AsyncQuorumLease AsyncQuorumLock AsyncQuorumStore "
            "AsyncSingleFlight AsyncSqlRowLock AsyncZooKeeperLease AsyncZooKeeperLock FenceGuard FileDeadLetters "
            "FlightOptions GetSetLease GetSetLock HeldRow MultiLease QuorumLease QuorumLock QuorumStore Sequencer "
            "SingleFlight SqlDeadLetters SqlRowLock UnreachablePolicy Work ZooKeeperLease ZooKeeperLock "
            "async_create_lock_table create_lock_table fenced_set fenced_set_async fenced_where key_for task_owner "
            "thread_owner"
        ),
        "segmented.stock": (
            "AsyncCarts AsyncOrderHandle AsyncShardedPool AuditReport Cart CartRefused CartReserved CartSettled "
            "Carts EnvelopePublisher OrderHandle Publisher RepairReport ShardedAuditReport ShardedPool "
            "find_async_pool find_pool pool_of"
        ),
    }
)
"""Names that this package had until 0.2, and their modules: importing them from here warns until 0.3 removes them."""

if not TYPE_CHECKING:  # otherwise every name would exist for a type checker
    __getattr__, __dir__ = late(__name__, LATE, MOVED)

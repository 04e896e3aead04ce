"""Segment locks, fencing and a durable gate: sell a limited stock without ever selling a unit twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.dedup import (
        AlreadyDone,
        AsyncDedup,
        AsyncExternalEffect,
        AsyncRun,
        AttemptSuperseded,
        CallCancelled,
        Dedup,
        DedupError,
        Done,
        EffectUnknown,
        ExternalEffect,
        FailedBefore,
        InFlight,
        NotDone,
        OtherPayload,
        Replay,
        ResultUnkept,
        Run,
        RunLost,
        StillUnknown,
        StoreEffect,
    )
    from segmented.dedup.sql import OnceTable
    from segmented.errors import (
        AcquireTimeout,
        CartDiverged,
        CartMismatch,
        CartUnknown,
        ChangeDiverged,
        ChangeGated,
        ChangeMismatch,
        DatabaseUnavailable,
        GrantSuperseded,
        InvalidInput,
        LeaseError,
        LeaseLost,
        LoaderFailed,
        LockUnreachable,
        NotGranted,
        OrderMismatch,
        OrderQueued,
        OrderUnknown,
        PartlyReleased,
        PermitsMismatch,
        PoolDiverged,
        PoolDrifted,
        PoolGated,
        PoolInShards,
        PoolMissing,
        PoolNotGated,
        PoolVanished,
        ReplicasMissing,
        SegmentedError,
        ShardVanished,
        StaleToken,
        StockError,
        StoreBusy,
        StoreError,
        StoreRefused,
        StoreUnavailable,
        TransactionConflict,
        WrongKind,
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
        AsyncSqlRowLock,
        AsyncZooKeeperLease,
        AsyncZooKeeperLock,
        FairLock,
        FenceGuard,
        FileDeadLetters,
        FlightOptions,
        GetSetLease,
        GetSetLock,
        HeldRow,
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
        SqlDeadLetters,
        SqlRowLock,
        UnreachablePolicy,
        Work,
        ZooKeeperLease,
        ZooKeeperLock,
        async_create_lock_table,
        create_lock_table,
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
    from segmented.stock import (
        AsyncCarts,
        AsyncGrant,
        AsyncOrderHandle,
        AsyncPool,
        AsyncShardedPool,
        AuditReport,
        Carts,
        EnvelopePublisher,
        Grant,
        OrderHandle,
        Outbox,
        Pool,
        Publisher,
        RepairReport,
        ShardedAuditReport,
        ShardedPool,
        find_async_pool,
        find_pool,
        pool_of,
    )
    from segmented.stores.memory import AsyncMemoryStore, MemoryStore
    from segmented.stores.quorum import AsyncQuorumStore, QuorumStore
    from segmented.stores.redis import AsyncRedisStore, RedisStore

__version__ = "0.2.0"

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
    # calls that are run once
    "AsyncDedup",
    "AsyncExternalEffect",
    "AsyncRun",
    "Dedup",
    "Done",
    "ExternalEffect",
    "NotDone",
    "OnceTable",
    "StillUnknown",
    "Replay",
    "Run",
    "StoreEffect",
    # locks, historical
    "AsyncGetSetLease",
    "AsyncGetSetLock",
    "GetSetLease",
    "GetSetLock",
    # stock
    "AsyncCarts",
    "AsyncGrant",
    "AsyncPool",
    "AsyncShardedPool",
    "AuditReport",
    "Carts",
    "Grant",
    "Pool",
    "ShardedPool",
    "find_async_pool",
    "find_pool",
    # orders submitted to workers
    "AsyncOrderHandle",
    "EnvelopePublisher",
    "OrderHandle",
    "Outbox",
    "Publisher",
    "pool_of",
    # orders and answers
    "Busy",
    "Cart",
    "CartRefused",
    "CartReserved",
    "CartSettled",
    "Order",
    "RepairReport",
    "ShardedAuditReport",
    "Reserved",
    "Settled",
    "SoldOut",
    # errors
    "AcquireTimeout",
    "AttemptSuperseded",
    "CallCancelled",
    "AlreadyDone",
    "CartDiverged",
    "CartMismatch",
    "CartUnknown",
    "ChangeDiverged",
    "ChangeGated",
    "ChangeMismatch",
    "DatabaseUnavailable",
    "DedupError",
    "EffectUnknown",
    "FailedBefore",
    "GrantSuperseded",
    "InFlight",
    "InvalidInput",
    "LeaseError",
    "LeaseLost",
    "LoaderFailed",
    "LockUnreachable",
    "NotGranted",
    "OrderMismatch",
    "OrderQueued",
    "OrderUnknown",
    "OtherPayload",
    "PartlyReleased",
    "PermitsMismatch",
    "PoolDiverged",
    "PoolDrifted",
    "PoolGated",
    "PoolInShards",
    "ResultUnkept",
    "RunLost",
    "ShardVanished",
    "PoolMissing",
    "PoolNotGated",
    "PoolVanished",
    "ReplicasMissing",
    "SegmentedError",
    "StaleToken",
    "StockError",
    "StoreBusy",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "TransactionConflict",
    "WrongKind",
]

LATE: Final = from_modules(
    {
        "segmented.dedup": (
            "AlreadyDone AsyncDedup AsyncExternalEffect AsyncRun AttemptSuperseded CallCancelled Dedup DedupError "
            "Done EffectUnknown ExternalEffect FailedBefore InFlight NotDone OtherPayload Replay ResultUnkept Run "
            "RunLost StillUnknown StoreEffect"
        ),
        "segmented.dedup.sql": "OnceTable",
        "segmented.errors": (
            "AcquireTimeout CartDiverged CartMismatch CartUnknown ChangeDiverged ChangeGated ChangeMismatch "
            "DatabaseUnavailable GrantSuperseded InvalidInput LeaseError LeaseLost LoaderFailed LockUnreachable "
            "NotGranted OrderMismatch OrderQueued OrderUnknown PartlyReleased PermitsMismatch PoolDiverged "
            "PoolDrifted PoolGated PoolInShards PoolMissing PoolNotGated PoolVanished ReplicasMissing "
            "SegmentedError ShardVanished StaleToken StockError StoreBusy StoreError StoreRefused StoreUnavailable "
            "TransactionConflict WrongKind"
        ),
        "segmented.locks": (
            "AsyncFairLock AsyncGetSetLease AsyncGetSetLock AsyncLease AsyncLock AsyncMultiLease AsyncMultiLock "
            "AsyncQuorumLease AsyncQuorumLock AsyncReadWriteLock AsyncReentrantLock AsyncSemaphore "
            "AsyncSingleFlight AsyncSqlRowLock AsyncZooKeeperLease AsyncZooKeeperLock FairLock FenceGuard "
            "FileDeadLetters FlightOptions GetSetLease GetSetLock HeldRow Lease Lock MultiLease MultiLock "
            "QuorumLease QuorumLock ReadWriteLock ReentrantLock Semaphore Sequencer SingleFlight SqlDeadLetters "
            "SqlRowLock UnreachablePolicy Work ZooKeeperLease ZooKeeperLock async_create_lock_table "
            "create_lock_table fenced_set fenced_set_async fenced_where key_for lockable single_flight task_owner "
            "thread_owner"
        ),
        "segmented.models": "Busy Cart CartRefused CartReserved CartSettled Order Reserved Settled SoldOut",
        "segmented.stock": (
            "AsyncCarts AsyncGrant AsyncOrderHandle AsyncPool AsyncShardedPool AuditReport Carts "
            "EnvelopePublisher Grant OrderHandle Outbox Pool Publisher RepairReport ShardedAuditReport "
            "ShardedPool find_async_pool find_pool pool_of"
        ),
        "segmented.stores.memory": "AsyncMemoryStore MemoryStore",
        "segmented.stores.quorum": "AsyncQuorumStore QuorumStore",
        "segmented.stores.redis": "AsyncRedisStore RedisStore",
    }
)
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)

"""The locks, one a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.locks.call_keys import key_for as key_for
    from segmented.locks.dead_letters import (
        DeadLetter as DeadLetter,
        DeadLetters as DeadLetters,
        Replayed as Replayed,
        Work as Work,
    )
    from segmented.locks.dead_letters_sql import SqlDeadLetters as SqlDeadLetters
    from segmented.locks.fair import AsyncFairLock as AsyncFairLock, FairLock as FairLock
    from segmented.locks.fencing import (
        FenceGuard as FenceGuard,
        Sequencer as Sequencer,
        async_fenced_set as async_fenced_set,
        fenced_set as fenced_set,
        fenced_where as fenced_where,
    )
    from segmented.locks.flights import (
        AsyncSingleFlight as AsyncSingleFlight,
        FlightOptions as FlightOptions,
        SingleFlight as SingleFlight,
        single_flight as single_flight,
    )
    from segmented.locks.lease import AsyncLease as AsyncLease, Lease as Lease
    from segmented.locks.lock import AsyncLock as AsyncLock, Lock as Lock
    from segmented.locks.locked_decorator import locked as locked
    from segmented.locks.multi import (
        AsyncMultiLease as AsyncMultiLease,
        AsyncMultiLock as AsyncMultiLock,
        MultiLease as MultiLease,
        MultiLock as MultiLock,
    )
    from segmented.locks.other_servers.get_set import (
        AsyncGetSetLease as AsyncGetSetLease,
        AsyncGetSetLock as AsyncGetSetLock,
        GetSetLease as GetSetLease,
        GetSetLock as GetSetLock,
    )
    from segmented.locks.other_servers.quorum import (
        AsyncQuorumLease as AsyncQuorumLease,
        AsyncQuorumLock as AsyncQuorumLock,
        QuorumLease as QuorumLease,
        QuorumLock as QuorumLock,
    )
    from segmented.locks.other_servers.sql_row import (
        AsyncSqlRowLock as AsyncSqlRowLock,
        HeldRow as HeldRow,
        SqlRowLock as SqlRowLock,
        async_create_lock_table as async_create_lock_table,
        create_lock_table as create_lock_table,
    )
    from segmented.locks.other_servers.zookeeper import (
        AsyncZooKeeperLease as AsyncZooKeeperLease,
        AsyncZooKeeperLock as AsyncZooKeeperLock,
        ZooKeeperLease as ZooKeeperLease,
        ZooKeeperLock as ZooKeeperLock,
    )
    from segmented.locks.read_write import AsyncReadWriteLock as AsyncReadWriteLock, ReadWriteLock as ReadWriteLock
    from segmented.locks.reentrant import (
        AsyncReentrantLock as AsyncReentrantLock,
        ReentrantLock as ReentrantLock,
        task_owner as task_owner,
        thread_owner as thread_owner,
    )
    from segmented.locks.semaphore import AsyncSemaphore as AsyncSemaphore, Semaphore as Semaphore
    from segmented.locks.unreachable import UnreachablePolicy as UnreachablePolicy
    from segmented.stores.quorum import AsyncQuorumStore as AsyncQuorumStore, QuorumStore as QuorumStore

LATE: Final = from_modules(
    {
        "segmented.locks.call_keys": "key_for",
        "segmented.locks.dead_letters": "DeadLetter DeadLetters Replayed Work",
        "segmented.locks.dead_letters_sql": "SqlDeadLetters",
        "segmented.locks.fair": "AsyncFairLock FairLock",
        "segmented.locks.fencing": "FenceGuard Sequencer async_fenced_set fenced_set fenced_where",
        "segmented.locks.flights": "AsyncSingleFlight FlightOptions SingleFlight single_flight",
        "segmented.locks.other_servers.get_set": "AsyncGetSetLease AsyncGetSetLock GetSetLease GetSetLock",
        "segmented.locks.lease": "AsyncLease Lease",
        "segmented.locks.lock": "AsyncLock Lock",
        "segmented.locks.locked_decorator": "locked",
        "segmented.locks.multi": "AsyncMultiLease AsyncMultiLock MultiLease MultiLock",
        "segmented.locks.other_servers.quorum": "AsyncQuorumLease AsyncQuorumLock QuorumLease QuorumLock",
        "segmented.locks.read_write": "AsyncReadWriteLock ReadWriteLock",
        "segmented.locks.reentrant": "AsyncReentrantLock ReentrantLock task_owner thread_owner",
        "segmented.locks.semaphore": "AsyncSemaphore Semaphore",
        "segmented.locks.other_servers.sql_row": (
            "AsyncSqlRowLock HeldRow SqlRowLock async_create_lock_table create_lock_table"
        ),
        "segmented.locks.unreachable": "UnreachablePolicy",
        "segmented.locks.other_servers.zookeeper": (
            "AsyncZooKeeperLease AsyncZooKeeperLock ZooKeeperLease ZooKeeperLock"
        ),
        "segmented.stores.quorum": "AsyncQuorumStore QuorumStore",
    }
)
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)

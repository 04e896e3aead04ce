"""The locks, one a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.locks.call_keys import key_for
    from segmented.locks.checks import FenceGuard, async_fenced_set, fenced_set, fenced_where
    from segmented.locks.dead_letters import DeadLetter, DeadLetters, Replayed, Work
    from segmented.locks.dead_letters_file import FileDeadLetters
    from segmented.locks.dead_letters_sql import SqlDeadLetters
    from segmented.locks.fair import AsyncFairLock, FairLock
    from segmented.locks.flight_plan import FlightOptions
    from segmented.locks.flights import AsyncSingleFlight, SingleFlight, single_flight
    from segmented.locks.get_set import AsyncGetSetLease, AsyncGetSetLock, GetSetLease, GetSetLock
    from segmented.locks.lease import AsyncLease, Lease
    from segmented.locks.lock import AsyncLock, Lock
    from segmented.locks.locked_decorator import locked
    from segmented.locks.multi import AsyncMultiLock, MultiLock
    from segmented.locks.multi_lease import AsyncMultiLease, MultiLease
    from segmented.locks.quorum import AsyncQuorumLease, AsyncQuorumLock, QuorumLease, QuorumLock
    from segmented.locks.read_write import AsyncReadWriteLock, ReadWriteLock
    from segmented.locks.reentrant import AsyncReentrantLock, ReentrantLock, task_owner, thread_owner
    from segmented.locks.semaphore import AsyncSemaphore, Semaphore
    from segmented.locks.sequencer import Sequencer
    from segmented.locks.sql_row import AsyncSqlRowLock, HeldRow, SqlRowLock
    from segmented.locks.sql_table import async_create_lock_table, create_lock_table
    from segmented.locks.unreachable import UnreachablePolicy
    from segmented.locks.zookeeper import AsyncZooKeeperLock, ZooKeeperLock
    from segmented.locks.zookeeper_lease import AsyncZooKeeperLease, ZooKeeperLease
    from segmented.stores.quorum import AsyncQuorumStore, QuorumStore

__all__ = [
    "AsyncFairLock",
    "AsyncGetSetLease",
    "AsyncGetSetLock",
    "AsyncLease",
    "AsyncLock",
    "AsyncMultiLease",
    "AsyncMultiLock",
    "AsyncQuorumLease",
    "AsyncQuorumLock",
    "AsyncQuorumStore",
    "AsyncReadWriteLock",
    "AsyncReentrantLock",
    "AsyncSemaphore",
    "AsyncSingleFlight",
    "AsyncSqlRowLock",
    "AsyncZooKeeperLease",
    "AsyncZooKeeperLock",
    "DeadLetter",
    "DeadLetters",
    "FairLock",
    "FenceGuard",
    "FileDeadLetters",
    "FlightOptions",
    "GetSetLease",
    "GetSetLock",
    "HeldRow",
    "Lease",
    "Lock",
    "MultiLease",
    "MultiLock",
    "QuorumLease",
    "QuorumLock",
    "QuorumStore",
    "ReadWriteLock",
    "ReentrantLock",
    "Replayed",
    "Semaphore",
    "Sequencer",
    "SingleFlight",
    "SqlDeadLetters",
    "SqlRowLock",
    "UnreachablePolicy",
    "Work",
    "ZooKeeperLease",
    "ZooKeeperLock",
    "async_create_lock_table",
    "async_fenced_set",
    "create_lock_table",
    "fenced_set",
    "fenced_where",
    "key_for",
    "locked",
    "single_flight",
    "task_owner",
    "thread_owner",
]

LATE: Final = from_modules(
    {
        "segmented.locks.call_keys": "key_for",
        "segmented.locks.checks": "FenceGuard fenced_set async_fenced_set fenced_where",
        "segmented.locks.dead_letters": "DeadLetter DeadLetters Replayed Work",
        "segmented.locks.dead_letters_file": "FileDeadLetters",
        "segmented.locks.dead_letters_sql": "SqlDeadLetters",
        "segmented.locks.fair": "AsyncFairLock FairLock",
        "segmented.locks.flight_plan": "FlightOptions",
        "segmented.locks.flights": "AsyncSingleFlight SingleFlight single_flight",
        "segmented.locks.get_set": "AsyncGetSetLease AsyncGetSetLock GetSetLease GetSetLock",
        "segmented.locks.lease": "AsyncLease Lease",
        "segmented.locks.lock": "AsyncLock Lock",
        "segmented.locks.locked_decorator": "locked",
        "segmented.locks.multi": "AsyncMultiLock MultiLock",
        "segmented.locks.multi_lease": "AsyncMultiLease MultiLease",
        "segmented.locks.quorum": "AsyncQuorumLease AsyncQuorumLock QuorumLease QuorumLock",
        "segmented.locks.read_write": "AsyncReadWriteLock ReadWriteLock",
        "segmented.locks.reentrant": "AsyncReentrantLock ReentrantLock task_owner thread_owner",
        "segmented.locks.semaphore": "AsyncSemaphore Semaphore",
        "segmented.locks.sequencer": "Sequencer",
        "segmented.locks.sql_row": "AsyncSqlRowLock HeldRow SqlRowLock",
        "segmented.locks.sql_table": "async_create_lock_table create_lock_table",
        "segmented.locks.unreachable": "UnreachablePolicy",
        "segmented.locks.zookeeper": "AsyncZooKeeperLock ZooKeeperLock",
        "segmented.locks.zookeeper_lease": "AsyncZooKeeperLease ZooKeeperLease",
        "segmented.stores.quorum": "AsyncQuorumStore QuorumStore",
    }
)
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)

"""Mistakes of a first try: each gives one sentence that names the right call."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from segmented import (
    AcquireTimeout,
    AsyncLock,
    AsyncMemoryStore,
    AsyncPool,
    AsyncRedisStore,
    FairLock,
    Gate,
    InvalidInput,
    Lock,
    MemoryStore,
    Outbox,
    Pool,
    locks,
)
from segmented.errors import StoreRefused
from segmented.orders import connect
from segmented.stock import ShardedPool

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", [Lock, FairLock, locks.MultiLock])
def test_a_lock_that_its_own_thread_holds_says_so_at_once(kind: Any) -> None:  # noqa: ANN401  # three classes
    lock = kind(MemoryStore(), ["report"] if kind is locks.MultiLock else "report")
    with (
        lock as lease,
        pytest.raises(
            InvalidInput, match=rf"^{kind.__name__}\(.*report.* is held by an outer block .* use ReentrantLock"
        ),
        lock,
    ):
        pass
    assert lease.has_ended
    with lock as outer:
        outer.release()
        with lock as inner:
            assert inner.is_trusted


def test_a_lock_that_its_own_task_holds_says_so_at_once() -> None:
    async def run() -> None:
        lock = AsyncLock(AsyncMemoryStore(), "report")
        async with lock:
            with pytest.raises(InvalidInput, match=r"would wait for itself: use AsyncReentrantLock$"):
                await lock.__aenter__()
            with pytest.raises(AcquireTimeout):  # another task may wait
                await asyncio.create_task(lock.acquire(0.01))

    asyncio.run(run())


@pytest.mark.parametrize("kind", [Lock, FairLock, locks.MultiLock])
def test_a_lease_in_a_block_of_its_own_counts_as_a_block_of_its_lock(kind: Any) -> None:  # noqa: ANN401  # three classes
    lock = kind(MemoryStore(), ["report"] if kind is locks.MultiLock else "report")
    with (
        lock.acquire() as lease,
        pytest.raises(InvalidInput, match=r" would wait for itself: use ReentrantLock$"),
        lock,
    ):
        pass
    assert lease.has_ended
    with lock.acquire() as first:
        first.release()
        with lock as second:
            assert second.is_trusted
    with lock as third:
        assert third.is_trusted, "a block that has ended is forgotten"


@pytest.mark.parametrize("kind", [AsyncLock, locks.AsyncFairLock, locks.AsyncMultiLock])
def test_a_lease_in_an_async_block_of_its_own_counts_as_a_block_of_its_lock(kind: Any) -> None:  # noqa: ANN401  # three classes
    async def run() -> None:
        lock = kind(AsyncMemoryStore(), ["report"] if kind is locks.AsyncMultiLock else "report")
        async with lock.acquire():
            with pytest.raises(InvalidInput, match=r" would wait for itself: use AsyncReentrantLock$"):
                await lock.__aenter__()
        async with await lock.acquire() as lease:
            with pytest.raises(InvalidInput, match=r" would wait for itself: use AsyncReentrantLock$"):
                await lock.__aenter__()
        assert lease.has_ended
        async with lock as third:
            assert third.is_trusted, "a block that has ended is forgotten"

    asyncio.run(run())


def test_a_lease_in_the_hands_of_another_thread_is_waited_for() -> None:
    lock = Lock(MemoryStore(), "report")
    handed = lock.acquire()
    worker = threading.Thread(target=handed.release)
    worker.start()
    with lock as lease:  # without a block of its own, a lease may end anywhere
        assert lease.is_trusted
    worker.join()


@pytest.mark.usefixtures("watched_drops")
def test_a_lease_that_is_dropped_in_its_block_warns() -> None:
    lock = Lock(MemoryStore(), "report")
    with pytest.warns(ResourceWarning, match="'report' was dropped without a release"):
        lock.acquire().__enter__()  # no block keeps the lease


def test_a_lock_in_the_other_kind_of_with_statement_names_the_right_one() -> None:
    async def run() -> None:
        lock: Any = Lock(MemoryStore(), "a")
        for found in (lock, lock.acquire()):
            with pytest.raises(InvalidInput, match=rf"^{type(found).__name__} is for threads: enter it by 'with'$"):
                async with found:
                    pass

    asynchronous: Any = AsyncLock(AsyncMemoryStore(), "a")
    pending = asynchronous.acquire()
    for found in (asynchronous, pending):
        with pytest.raises(InvalidInput, match=r" is for asyncio: enter it by 'async with'$"), found:
            pass
    pending.close()
    asyncio.run(run())


def test_a_bool_for_a_timeout_names_the_call_that_does_not_wait() -> None:
    with pytest.raises(InvalidInput, match=r"^timeout=False is not a waiting time: try_acquire\(\) does not wait"):
        Lock(MemoryStore(), "a").acquire(False)  # noqa: FBT003  # as typed first


def test_an_address_for_a_store_names_the_call_that_connects() -> None:
    with pytest.raises(InvalidInput) as caught:
        Pool("redis://:secret@localhost", "poster")  # type: ignore[arg-type]  # as typed first
    assert str(caught.value) == "Pool needs a store, and got a text: give RedisStore(url)"
    with pytest.raises(InvalidInput, match=r"got a text: give AsyncRedisStore\(url\)$"):
        AsyncLock("redis://localhost", "n")  # type: ignore[arg-type]  # as typed first


def test_a_store_that_was_not_awaited_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        AsyncPool(AsyncRedisStore.from_url("redis://localhost:1/0"), "mug")  # type: ignore[arg-type]  # the mistake
    said = "AsyncPool needs a store, and got a coroutine: await AsyncRedisStore.from_url(...) first"
    assert str(caught.value) == said


def test_submitting_to_a_pool_without_an_outbox_says_what_is_missing() -> None:
    async def submit() -> None:
        pool = AsyncPool(AsyncMemoryStore(), "poster")
        await pool.open(stock=5, segments=1)
        await pool.submit("o-1")

    sentence = r"^orders of 'poster' need an outbox: create the pool with outbox=Outbox\(publisher\), or with"
    pool, sharded = Pool(MemoryStore(), "poster"), ShardedPool(MemoryStore(), "poster")
    pool.open(stock=5, segments=1)
    sharded.open(stock=5, segments=2, shards=2)
    for one in (pool, sharded):
        with pytest.raises(InvalidInput, match=sentence):
            one.submit("o-1")
    with pytest.raises(InvalidInput, match=sentence):
        asyncio.run(submit())


def test_a_handle_says_that_it_has_read_nothing_yet() -> None:
    pool = Pool(MemoryStore(), "poster", outbox=Outbox())
    pool.open(stock=5, segments=1)
    pool.submit("o-1")
    pool.confirm("o-1")
    handle = pool.handle("o-1")
    assert (handle.state, repr(handle)) == ("unread", "OrderHandle('poster', 'o-1', unread)")
    assert (handle.refresh(), handle.state) == ("confirmed", "confirmed")


def test_an_order_database_without_tables_names_the_command_that_creates_them(tmp_path: Path) -> None:
    with Gate(connect(f"sqlite:///{tmp_path / 'orders.db'}")) as gate:
        pool = Pool(MemoryStore(), "poster", gate=gate)
        with pytest.raises(StoreRefused, match=r"create its tables with 'segmented orders migrate --database URL'$"):
            pool.open(stock=5, segments=1)

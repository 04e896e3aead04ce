"""A first program: clocks, with statements, arguments, and the errors of first mistakes."""

import asyncio
import pickle
import threading
from collections.abc import Callable
from copy import deepcopy
from types import ModuleType
from typing import Any

import pytest

import segmented
from segmented import (
    AcquireTimeout,
    AsyncDedup,
    AsyncFairLock,
    AsyncLock,
    AsyncMemoryStore,
    AsyncPool,
    Dedup,
    FairLock,
    InvalidInput,
    Lock,
    MemoryStore,
    Order,
    Outbox,
    Pool,
    ReadWriteLock,
    RedisStore,
    Reserved,
    Semaphore,
    SoldOut,
    dedup,
    errors,
    locks,
    stock,
)
from segmented.locks import MultiLock
from segmented.servers import ValkeyServer
from segmented.stock import AsyncShardedPool, Carts, ShardedPool
from segmented.testing import ManualClock

# --- tests without a server ---


def test_a_hold_ends_when_the_test_moves_the_clock() -> None:
    clock = ManualClock()
    pool = Pool(MemoryStore(clock=clock), "poster", hold=60.0)
    pool.open(stock=2, segments=2)
    assert isinstance(pool.reserve("order-1", quantity=2), Reserved)
    assert isinstance(pool.reserve("order-2"), SoldOut)
    clock.advance(61.0)
    assert isinstance(pool.reserve("order-2"), Reserved)


def test_a_wait_moves_a_clock_that_is_auto() -> None:
    clock = ManualClock(auto=True)
    store = MemoryStore(clock=clock)
    Lock(store, "report", ttl=30.0).acquire()
    with pytest.raises(AcquireTimeout):
        Lock(store, "report").acquire(timeout=1.0)
    assert clock.now() == 1_001.0
    Lock(store, "report").acquire(timeout=60.0)
    assert repr(clock) == "ManualClock(1030, auto=True)"


STILL = (
    r"^a wait of 0\.05 s does not end, because the store's clock does not move: create it as ManualClock\(auto=True\)"
)


def test_a_wait_on_a_clock_that_stands_still_says_so() -> None:
    store = MemoryStore(clock=ManualClock())
    Lock(store, "report").acquire()
    with pytest.raises(InvalidInput, match=STILL):
        Lock(store, "report").acquire(timeout=0.05)


@pytest.mark.parametrize("kind", [MemoryStore, AsyncMemoryStore])
@pytest.mark.parametrize(("clock", "what"), [(abs, "a function"), (5, "int")])
def test_a_clock_that_is_merely_callable_is_refused_at_once(kind: Any, clock: Any, what: str) -> None:  # noqa: ANN401  # what is typed first
    sentence = (
        rf"^a clock is an object with a method now\(\), such as ManualClock\(\) of segmented.testing, not {what}$"
    )
    with pytest.raises(InvalidInput, match=sentence):
        kind(clock=clock)


# --- locks ---


def test_a_lock_is_acquired_by_a_with_statement_and_released_at_its_end() -> None:
    lock = Lock(MemoryStore(), "report")
    with lock as lease:
        assert lease.is_trusted
        assert lock.try_acquire() is None
    assert lease.has_ended
    assert not lock.is_locked()


KINDS = [(Lock, AsyncLock), (FairLock, AsyncFairLock), (Pool, AsyncPool), (ShardedPool, AsyncShardedPool)]


@pytest.mark.parametrize(("sync", "asynchronous"), [*KINDS, (Dedup, AsyncDedup)])
def test_a_store_of_the_other_kind_is_refused_with_the_class_to_use(sync: Any, asynchronous: Any) -> None:  # noqa: ANN401  # what is typed first
    sentence = rf"for threads, such as RedisStore, and got AsyncMemoryStore, which {asynchronous.__name__} takes$"
    with pytest.raises(InvalidInput, match=sentence):
        sync(AsyncMemoryStore(), "n")
    with pytest.raises(InvalidInput, match=rf"and got MemoryStore, which {sync.__name__} takes$"):
        asynchronous(MemoryStore(), "n")


# --- pools ---


@pytest.mark.parametrize("verb", ["reserve", "grant", "submit"])
@pytest.mark.parametrize("is_sharded", [False, True])
def test_an_order_is_given_as_its_id_and_its_parts(verb: str, *, is_sharded: bool) -> None:
    store = MemoryStore()
    pool: Any = (ShardedPool if is_sharded else Pool)(store, "poster", outbox=Outbox())
    pool.open(stock=9, segments=4, limit_per_customer=2, **({"shards": 2} if is_sharded else {}))
    getattr(pool, verb)("o-1", quantity=2, customer_id="c")
    assert type(pool.reserve(Order("o-2", customer_id="c"))).__name__ == "LimitReached"
    with pytest.raises(InvalidInput, match=r"^customer_id 'd' beside order 'o-3', which has its own$"):
        getattr(pool, verb)(Order("o-3", customer_id="c"), customer_id="d")


# --- what an object shows of itself ---


@pytest.mark.parametrize("package", [segmented, errors, locks, stock, dedup])
def test_a_package_lists_its_public_names_and_no_others(package: ModuleType) -> None:
    gates = {"AsyncGate", "Gate"} if package is segmented else set()  # which need an extra, unlike `__all__`
    assert [name for name in dir(package) if not name.startswith("__")] == sorted({*package.__all__, *gates})


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


USERS: dict[str, Callable[[Any], object]] = {
    "the store": lambda store: store,
    "a lock": lambda store: Lock(store, "stock"),
    "readers and writers": lambda store: ReadWriteLock(store, "prices"),
    "a semaphore": lambda store: Semaphore(store, "gateway", permits=2),
    "several locks": lambda store: MultiLock(store, ["a", "b"]),
    "a pool": lambda store: Pool(store, "mug"),
    "a pool in shards": lambda store: ShardedPool(store, "mug"),
    "an order": lambda store: Pool(store, "mug").handle("o-1"),
    "carts": Carts,
    "deduplication": lambda store: Dedup(store, "shop"),
}


def refused(what: object, whose: str) -> None:
    said = f"{whose} cannot be pickled, nor a lock or pool of it: create both in the process that needs them"
    for copied in (pickle.dumps, deepcopy):
        with pytest.raises(InvalidInput) as caught:
            copied(what)
        assert str(caught.value) == said


@pytest.mark.parametrize("user", USERS)
def test_what_belongs_to_its_process_is_not_pickled_and_says_what_to_do(user: str, valkey: ValkeyServer) -> None:
    refused(USERS[user](MemoryStore()), "MemoryStore")
    with RedisStore.from_url(valkey.url) as store:
        refused(USERS[user](store), "RedisStore")


def test_a_lease_in_the_hands_of_another_thread_is_waited_for() -> None:
    lock = Lock(MemoryStore(), "report")
    handed = lock.acquire()
    worker = threading.Thread(target=handed.release)
    worker.start()
    with lock as lease:  # without a block of its own, a lease may end anywhere
        assert lease.is_trusted
    worker.join()

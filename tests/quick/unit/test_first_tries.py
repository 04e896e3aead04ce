"""Calls as a user types them first: each works, or gives one sentence that names the right call."""

from __future__ import annotations

import asyncio
import inspect
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import segmented
from segmented import (
    AcquireTimeout,
    AsyncDedup,
    AsyncFairLock,
    AsyncLock,
    AsyncMemoryStore,
    AsyncPool,
    AsyncReadWriteLock,
    AsyncReentrantLock,
    AsyncSemaphore,
    Dedup,
    FairLock,
    InvalidInput,
    LeaseLost,
    Lock,
    MemoryStore,
    Order,
    Outbox,
    Pool,
    ReadWriteLock,
    ReentrantLock,
    Reserved,
    Semaphore,
    SoldOut,
    dedup,
    errors,
    locks,
    single_flight,
    stock,
)
from segmented.cli.reference import MODULES, public_names
from segmented.locks import AsyncMultiLock, MultiLock
from segmented.protocol import RevokeLock
from segmented.stock import AsyncShardedPool, ShardedPool
from segmented.stores.redis import AsyncRedisStore, RedisStore
from segmented.testing import ManualClock

if TYPE_CHECKING:
    from types import ModuleType

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


def test_a_wait_of_a_task_moves_a_clock_that_is_auto() -> None:
    async def wait() -> float:
        clock = ManualClock(auto=True)
        store = AsyncMemoryStore(clock=clock)
        await AsyncLock(store, "report", ttl=30.0).acquire()
        await AsyncLock(store, "report").acquire(timeout=60.0)
        return clock.now()

    assert round(asyncio.run(wait()), 2) == 1_030.0


def test_a_store_in_memory_is_a_context_manager_as_one_on_a_server_is() -> None:
    async def enter() -> None:
        async with AsyncMemoryStore() as store:
            assert repr(store) == "AsyncMemoryStore()"

    with MemoryStore(clock=ManualClock()) as store:
        assert repr(store) == "MemoryStore(clock=ManualClock(1000))"
    asyncio.run(enter())


STILL = (
    r"^a wait of 0\.05 s does not end, because the store's clock does not move: create it as ManualClock\(auto=True\)"
)


def test_a_wait_on_a_clock_that_stands_still_says_so() -> None:
    store = MemoryStore(clock=ManualClock())
    Lock(store, "report").acquire()
    with pytest.raises(InvalidInput, match=STILL):
        Lock(store, "report").acquire(timeout=0.05)


def test_a_wait_of_a_task_on_a_clock_that_stands_still_says_so() -> None:
    async def wait() -> None:
        store = AsyncMemoryStore(clock=ManualClock())
        await AsyncLock(store, "report").acquire()
        await AsyncLock(store, "report").acquire(timeout=0.05)

    with pytest.raises(InvalidInput, match=STILL):
        asyncio.run(wait())


@pytest.mark.parametrize("kind", [MemoryStore, AsyncMemoryStore])
@pytest.mark.parametrize(("clock", "what"), [(abs, "a function"), (5, "int")])
def test_a_clock_that_is_merely_callable_is_refused_at_once(kind: Any, clock: Any, what: str) -> None:  # noqa: ANN401  # what is typed first
    sentence = (
        rf"^a clock is an object with a method now\(\), such as ManualClock\(\) of segmented.testing, not {what}$"
    )
    with pytest.raises(InvalidInput, match=sentence):
        kind(clock=clock)


def test_a_store_on_a_server_refuses_such_a_clock_too(valkey_url: str) -> None:
    async def connect() -> None:
        await AsyncRedisStore.from_url(valkey_url, clock=abs)  # type: ignore[arg-type]  # as typed first

    with pytest.raises(InvalidInput, match="not a function"):
        RedisStore.from_url(valkey_url, clock=abs)  # type: ignore[arg-type]  # as typed first
    with pytest.raises(InvalidInput, match="not a function"):
        asyncio.run(connect())


# --- locks ---


def test_a_lock_is_acquired_by_a_with_statement_and_released_at_its_end() -> None:
    lock = Lock(MemoryStore(), "report")
    with lock as lease:
        assert lease.is_trusted
        assert lock.try_acquire() is None
    assert lease.has_ended
    assert not lock.is_locked()


def test_a_lock_is_acquired_by_an_async_with_statement_and_released_at_its_end() -> None:
    async def run() -> None:
        lock = AsyncLock(AsyncMemoryStore(), "report")
        async with lock as lease:
            assert lease.is_trusted
            assert await lock.try_acquire() is None
        assert lease.has_ended

    asyncio.run(run())


def test_several_locks_are_acquired_by_one_with_statement() -> None:
    async def run() -> None:
        lock = AsyncMultiLock(AsyncMemoryStore(), ["a", "b"])
        async with lock:
            assert await lock.try_acquire() is None

    lock = MultiLock(MemoryStore(), ["a", "b"])
    with lock:
        assert lock.try_acquire() is None
    with lock.acquire(5) as lease:
        assert lease.is_trusted
    asyncio.run(run())


def test_a_with_statement_whose_body_raises_releases_too() -> None:
    lock = Lock(MemoryStore(), "report")
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    assert not lock.is_locked()


def test_threads_that_share_a_handle_end_their_own_leases() -> None:
    semaphore, both = Semaphore(MemoryStore(), "provider", permits=2), threading.Barrier(2)
    ended: list[tuple[bool, bool]] = []

    def work() -> None:
        with semaphore as lease:
            both.wait(30)
            entered = lease.is_trusted
        ended.append((entered, lease.has_ended))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert ended == [(True, True)] * 2


def test_the_timeout_of_an_acquire_is_its_first_argument() -> None:
    store = MemoryStore(clock=ManualClock(auto=True))
    for lock in (Lock(store, "a"), FairLock(store, "b"), Semaphore(store, "c", permits=1), ReentrantLock(store, "d")):
        assert lock.acquire(5).is_trusted
    with pytest.raises(AcquireTimeout, match=r"^lock 'a' was not free within 5 s$"):
        Lock(store, "a").acquire(5)


def test_the_timeout_of_an_acquire_for_asyncio_is_its_first_argument() -> None:
    async def run() -> None:
        store = AsyncMemoryStore()
        for lock in (AsyncLock(store, "a"), AsyncFairLock(store, "b"), AsyncSemaphore(store, "c", permits=1)):
            assert (await lock.acquire(5)).is_trusted

    asyncio.run(run())


def test_a_lock_calls_its_on_lost_once_for_a_lease_that_is_lost() -> None:
    clock, lost = ManualClock(), threading.Event()
    lease = Lock(MemoryStore(clock=clock), "report", on_lost=lost.set).acquire()
    clock.advance(30.0)
    assert lease.is_lost
    assert lost.is_set()


def test_a_lock_for_asyncio_calls_its_on_lost_too() -> None:
    async def run() -> bool:
        store, lost = AsyncMemoryStore(), asyncio.Event()
        lease = await AsyncLock(store, "report", on_lost=lost.set).acquire()
        await store.execute(RevokeLock("report", "r"))
        with pytest.raises(LeaseLost):
            await lease.renew()
        return lost.is_set()

    assert asyncio.run(run())


def test_a_reentrant_lock_belongs_to_the_thread() -> None:
    lock, found = ReentrantLock(MemoryStore(), "account"), []
    with lock, lock as inner:
        assert inner.is_trusted
        other = threading.Thread(target=lambda: found.append(lock.try_acquire()))
        other.start()
        other.join(30)
    assert found == [None]


def test_a_reentrant_lock_for_asyncio_belongs_to_the_task() -> None:
    async def other(lock: AsyncReentrantLock) -> object:
        return await lock.try_acquire()

    async def run() -> object:
        lock = AsyncReentrantLock(AsyncMemoryStore(), "account")
        async with lock, lock as inner:
            assert inner.is_trusted
            return await asyncio.create_task(other(lock))

    assert asyncio.run(run()) is None


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


@pytest.mark.parametrize("verb", ["reserve", "grant", "submit"])
@pytest.mark.parametrize("is_sharded", [False, True])
def test_an_order_for_asyncio_is_given_as_its_id_and_its_parts(verb: str, *, is_sharded: bool) -> None:
    async def run() -> str:
        store = AsyncMemoryStore()
        pool: Any = (AsyncShardedPool if is_sharded else AsyncPool)(store, "poster", outbox=Outbox())
        await pool.open(stock=9, segments=4, limit_per_customer=2, **({"shards": 2} if is_sharded else {}))
        await getattr(pool, verb)("o-1", quantity=2, customer_id="c")
        return type(await pool.reserve(Order("o-2", customer_id="c"))).__name__

    assert asyncio.run(run()) == "LimitReached"


# --- what an object shows of itself ---

FOR_HOLDERS = [
    *("fencing_token", "has_ended", "holder_id", "is_lost", "is_trusted", "lost", "name", "on_lost", "release"),
    *("remaining", "renew", "require", "sequencer", "trusted_until", "ttl_ms"),
]


def test_a_lease_lists_what_its_holder_needs() -> None:
    lease = Lock(MemoryStore(), "report").acquire()
    assert [name for name in dir(lease) if not name.startswith("__")] == FOR_HOLDERS
    assert all(hasattr(lease, name) for name in dir(lease))


def test_a_lease_for_asyncio_lists_its_cancel_scope_too() -> None:
    async def run() -> list[str]:
        lease = await AsyncLock(AsyncMemoryStore(), "report").acquire()
        return [name for name in dir(lease) if not name.startswith("__")]

    assert asyncio.run(run()) == ["cancel_scope", *FOR_HOLDERS]


@pytest.mark.parametrize("package", [segmented, errors, locks, stock, dedup])
def test_a_package_lists_its_public_names_and_no_others(package: ModuleType) -> None:
    gates = {"AsyncGate", "Gate"} if package is segmented else set()  # which need an extra, unlike `__all__`
    assert [name for name in dir(package) if not name.startswith("__")] == sorted({*package.__all__, *gates})


STORE = MemoryStore(clock=ManualClock(5.0))
SHOWN: list[tuple[object, str]] = [
    (STORE, "MemoryStore(clock=ManualClock(5))"),
    (AsyncMemoryStore(), "AsyncMemoryStore()"),
    (Lock(STORE, "n", ttl=5.0, renew=True), "Lock('n', ttl=5, renew=True)"),
    (Semaphore(STORE, "n", permits=3), "Semaphore('n', ttl=30, permits=3)"),
    (AsyncSemaphore(AsyncMemoryStore(), "n", permits=3), "AsyncSemaphore('n', ttl=30, permits=3)"),
    (ReentrantLock(STORE, "n", renew=True), "ReentrantLock('n', ttl=30, renew=True, owner=thread_owner)"),
    (ReentrantLock(STORE, "n", owner="job"), "ReentrantLock('n', ttl=30, owner='job')"),
    (AsyncReentrantLock(AsyncMemoryStore(), "n"), "AsyncReentrantLock('n', ttl=30, owner=task_owner)"),
    (ReadWriteLock(STORE, "n", renew=True), "ReadWriteLock('n', ttl=30, renew=True)"),
    (AsyncReadWriteLock(AsyncMemoryStore(), "n"), "AsyncReadWriteLock('n', ttl=30)"),
    (Pool(STORE, "poster"), "Pool('poster', MemoryStore(clock=ManualClock(5)))"),
    (single_flight(STORE, keep=60), "SingleFlight(keep=60)"),
    (single_flight(AsyncMemoryStore(), keep=60), "AsyncSingleFlight(keep=60)"),
]


@pytest.mark.parametrize(("shown", "said"), SHOWN, ids=[said for _, said in SHOWN])
def test_an_object_shows_what_decides(shown: object, said: str) -> None:
    assert repr(shown) == said


WITHOUT_REPR = {"ArchiveTarget", "Killed", "MemoryModel", "OnceTable"}
"""A protocol, two that only tests see, and one without a state."""


def test_every_public_class_has_a_repr() -> None:
    modules = [import_module(name) for name in MODULES]
    found = [getattr(module, name) for module in modules for name in public_names(module)]
    classes = {one for one in found if inspect.isclass(one) and one.__module__.startswith("segmented.")}
    bare = {one.__name__ for one in classes if one.__repr__ is object.__repr__ and Protocol not in one.__bases__}
    assert bare == WITHOUT_REPR

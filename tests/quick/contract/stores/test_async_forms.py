"""`async with` in both its forms."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from segmented.errors import AcquireTimeout, InvalidInput, NotGranted
from segmented.locks import AsyncLock, locked
from segmented.models import Decided, Order, SoldOut
from segmented.stock import AsyncGrant, AsyncPool
from segmented.stores.memory import AsyncMemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from segmented.plans.drivers import AsyncStore

_numbers = count()


def new_name() -> str:
    return f"async-form-{next(_numbers)}"


def run(test: Callable[[AsyncStore], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test(AsyncMemoryStore()))


def test_a_lock_is_held_for_the_body() -> None:
    async def test(store: AsyncStore) -> None:
        lock = AsyncLock(store, new_name(), ttl=60)
        async with lock.acquire(timeout=30) as lease:
            assert lease.is_trusted
            assert await lock.try_acquire() is None
            with pytest.raises(AcquireTimeout):
                async with lock.acquire(timeout=0):
                    pytest.fail("the body ran")
        async with await lock.acquire(timeout=0):
            assert await lock.try_acquire() is None
        again = await lock.try_acquire()
        assert again is not None
        await again.release()

    run(test)


def test_a_body_that_raises_releases() -> None:
    async def test(store: AsyncStore) -> None:
        lock = AsyncLock(store, new_name(), ttl=60)
        with pytest.raises(ZeroDivisionError):
            async with lock.acquire():
                _ = 1 // 0
        assert await lock.try_acquire() is not None

    run(test)


def test_a_grant_is_confirmed_at_the_end_of_the_body_and_cancelled_if_it_raises() -> None:
    async def test(store: AsyncStore) -> None:
        pool = AsyncPool(store, new_name())
        await pool.open(stock=8, segments=2)
        async with pool.grant("a", quantity=3, timeout=30) as grant:
            assert grant.is_trusted
        with pytest.raises(ZeroDivisionError):
            async with pool.grant(Order("b", 2)):
                _ = 1 // 0
        state = await pool.state()
        assert (state.available, state.reserved, state.confirmed) == (5, 0, 3)

    run(test)


def test_a_refusal_does_not_run_the_body() -> None:
    async def test(store: AsyncStore) -> None:
        pool = AsyncPool(store, new_name())
        await pool.open(stock=8, segments=2)
        with pytest.raises(NotGranted) as caught:
            async with pool.grant("a", quantity=9, timeout=30):
                pytest.fail("the body ran")
        assert isinstance(caught.value.refusal, SoldOut)

    run(test)


def test_an_awaited_grant_is_the_answer() -> None:
    async def test(store: AsyncStore) -> None:
        pool = AsyncPool(store, new_name())
        await pool.open(stock=8, segments=2)
        grant: Any = await pool.grant("a", timeout=30)
        assert isinstance(grant, AsyncGrant)
        async with grant:
            pass
        assert isinstance(await pool.grant("a", timeout=30), Decided)
        assert isinstance(await pool.grant("b", quantity=9, timeout=30), SoldOut)

    run(test)


def test_a_waiting_time_that_is_none_is_rejected_before_anything_is_awaited() -> None:
    async def test(store: AsyncStore) -> None:
        with pytest.raises(InvalidInput):
            AsyncLock(store, new_name()).acquire(timeout=-1)
        with pytest.raises(InvalidInput):
            AsyncPool(store, new_name()).grant("a", timeout=float("nan"))

    run(test)


def test_an_acquire_is_a_coroutine_for_a_task_a_group_and_a_gathering() -> None:
    async def test(store: AsyncStore) -> None:
        first, second = AsyncLock(store, new_name(), ttl=60), AsyncLock(store, new_name(), ttl=60)
        lease = await asyncio.create_task(first.acquire(timeout=30))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first.acquire(), 0.05)
        await lease.release()
        one, other = await asyncio.gather(first.acquire(timeout=30), second.acquire(timeout=30))
        assert one.is_trusted
        assert other.is_trusted
        await one.release()
        await other.release()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(first.acquire(timeout=30))
        assert task.result().is_trusted
        await task.result().release()

    run(test)


def test_a_task_that_is_cancelled_before_its_first_step_leaves_nothing_behind() -> None:
    async def test(store: AsyncStore) -> None:
        lock = AsyncLock(store, new_name(), ttl=60)
        task = asyncio.create_task(lock.acquire(timeout=30))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await lock.is_locked()

    run(test)


def test_a_forgotten_await_is_warned_of_by_the_name_of_the_call() -> None:
    async def forget() -> None:
        AsyncLock(AsyncMemoryStore(), "door").acquire()

    with pytest.warns(RuntimeWarning, match=r"^coroutine 'AsyncLock\.acquire' was never awaited"):
        asyncio.run(forget())


def test_a_locked_function_that_returns_an_acquire_is_refused_without_a_warning() -> None:
    async def test(store: AsyncStore) -> None:
        inner = AsyncLock(store, new_name(), ttl=60)

        @locked(new_name(), store=store)
        async def work() -> object:  # the function under the lock is a coroutine function
            return inner.acquire()

        with pytest.raises(InvalidInput, match="it returned Acquiring, which would run unlocked"):
            await work()

    run(test)

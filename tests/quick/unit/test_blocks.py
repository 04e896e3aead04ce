"""A block of a lock ends its own lease, whichever thread or task ends it, and in whatever order."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from math import inf
from queue import Queue
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from segmented import AsyncMemoryStore, FairLock, InvalidInput, Lock, MemoryStore, ReadWriteLock
from segmented.locks import AsyncSemaphore, MultiLock, Semaphore
from segmented.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from contextlib import AbstractContextManager

    from segmented import Lease
    from segmented.locks import AsyncLease, MultiLease
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")


def inside(lock: Lock | Semaphore) -> Generator[Lease, None, None]:
    with lock as lease:
        yield lease


async def inside_async(lock: AsyncSemaphore) -> AsyncGenerator[AsyncLease, None]:
    async with lock as lease:
        yield lease


def test_generators_that_end_in_the_order_of_their_beginning_end_their_own_leases() -> None:
    semaphore = Semaphore(MemoryStore(), "s", permits=2, ttl=30)
    first, second = inside(semaphore), inside(semaphore)
    leases = next(first), next(second)
    first.close()
    assert [lease.is_trusted for lease in leases] == [False, True]
    second.close()
    assert [lease.is_trusted for lease in leases] == [False, False]


def test_a_block_that_another_thread_ends_ends_its_own_lease() -> None:
    semaphore = Semaphore(MemoryStore(), "s", permits=2, ttl=30)
    first, second = inside(semaphore), inside(semaphore)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other, ThreadPoolExecutor(1) as third:
        leases = one.submit(next, first).result(), other.submit(next, second).result()
        third.submit(first.close).result()
        assert [lease.is_trusted for lease in leases] == [False, True]
        third.submit(second.close).result()


def test_a_block_whose_lease_has_lapsed_frees_nobody_elses_lock() -> None:
    clock = ManualClock()
    lock = Lock(MemoryStore(clock=clock), "x", ttl=1)
    first, second = inside(lock), inside(lock)
    next(first)
    clock.advance(2)
    held = next(second)
    first.close()
    assert held.is_trusted
    second.close()


def test_an_async_generator_that_another_task_ends_ends_its_own_lease() -> None:
    async def test() -> None:
        semaphore = AsyncSemaphore(AsyncMemoryStore(), "s", permits=2, ttl=30)
        first, second = inside_async(semaphore), inside_async(semaphore)

        async def enter(one: AsyncGenerator[AsyncLease, None]) -> AsyncLease:
            return await anext(one)

        leases = [await asyncio.create_task(enter(one)) for one in (first, second)]
        await asyncio.create_task(first.aclose())
        assert [lease.is_trusted for lease in leases] == [False, True]
        await second.aclose()

    asyncio.run(test())


def test_a_stack_ends_its_own_blocks_whichever_thread_ends_it() -> None:
    semaphore = Semaphore(MemoryStore(), "s", permits=4, ttl=30)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        for opening, closing in ((one, one), (one, other)):
            stacks = ExitStack(), ExitStack()
            leases = [opening.submit(stack.enter_context, semaphore).result() for stack in stacks]
            closing.submit(stacks[0].close).result()
            assert [lease.is_trusted for lease in leases] == [False, True]
            one.submit(stacks[1].close).result()
            assert [lease.is_trusted for lease in leases] == [False, False]


def test_an_async_stack_ends_its_own_block_in_any_task() -> None:
    async def test() -> None:
        semaphore = AsyncSemaphore(AsyncMemoryStore(), "s", permits=2, ttl=30)
        stacks = AsyncExitStack(), AsyncExitStack()
        leases = [await stack.enter_async_context(semaphore) for stack in stacks]
        await stacks[0].aclose()
        assert [lease.is_trusted for lease in leases] == [False, True]
        await asyncio.create_task(stacks[1].aclose())
        assert [lease.is_trusted for lease in leases] == [False, False]

    asyncio.run(test())


def test_a_block_of_unknown_owner_ends_in_another_thread_only_if_it_is_alone() -> None:
    semaphore = Semaphore(MemoryStore(), "s", permits=2, ttl=30)
    with ThreadPoolExecutor(1) as other:
        alone = semaphore.__enter__()
        other.submit(semaphore.__exit__, None, None, None).result()
        assert not alone.is_trusted
        leases = semaphore.__enter__(), semaphore.__enter__()
        with pytest.raises(InvalidInput, match=r"^which of 2 open blocks of one lock ends is not known"):
            other.submit(semaphore.__exit__, None, None, None).result()
        assert [lease.is_trusted for lease in leases] == [True, True]
        for lease in leases:
            lease.release()


def test_the_number_of_an_ended_thread_does_not_make_a_new_one_the_owner() -> None:
    semaphore = Semaphore(MemoryStore(), "s", permits=2, ttl=30)
    leases: list[Lease] = []
    failures: list[InvalidInput] = []

    def leave() -> None:
        try:
            semaphore.__exit__(None, None, None)
        except InvalidInput as failure:
            failures.append(failure)

    for step in (lambda: leases.append(semaphore.__enter__()), lambda: leases.append(semaphore.__enter__()), leave):
        thread = threading.Thread(target=step)  # gets the number of the one before, which has ended
        thread.start()
        thread.join()
    assert (len(failures), [lease.is_trusted for lease in leases]) == (1, [True, True])
    for lease in leases:
        lease.release()


class Asked(MemoryStore):
    """A store that tells how many operations it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Queue[object] = Queue()

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        self.asked.put(operation)
        return super().execute(operation, deadline=deadline)


def of_a_lock(store: MemoryStore) -> AbstractContextManager[Lease]:
    return Lock(store, "x", ttl=60)


def of_a_fair_lock(store: MemoryStore) -> AbstractContextManager[Lease]:
    return FairLock(store, "x", ttl=60)


def of_a_writer(store: MemoryStore) -> AbstractContextManager[Lease]:
    return ReadWriteLock(store, "x", ttl=60).write


def of_many(store: MemoryStore) -> AbstractContextManager[MultiLease]:
    return MultiLock(store, ["x"], ttl=60)


def by_generator(lock: Any) -> tuple[Callable[[], object], Callable[[], object]]:  # noqa: ANN401  # any of these locks
    found = inside(lock)
    return partial(next, found), found.close


def by_stack(lock: Any) -> tuple[Callable[[], object], Callable[[], object]]:  # noqa: ANN401  # any of these locks
    stack = ExitStack()
    return partial(stack.enter_context, lock), stack.close


def by_stack_of_leases(lock: Any) -> tuple[Callable[[], object], Callable[[], object]]:  # noqa: ANN401  # any of these locks
    stack = ExitStack()
    return lambda: stack.enter_context(lock.acquire()), stack.close


def by_call(lock: Any) -> tuple[Callable[[], object], Callable[[], object]]:  # noqa: ANN401  # any of these locks
    return lock.__enter__, partial(lock.__exit__, None, None, None)


@pytest.mark.parametrize("entering", [by_generator, by_stack, by_stack_of_leases, by_call])
@pytest.mark.parametrize("kind", [of_a_lock, of_a_fair_lock, of_a_writer, of_many])
def test_a_thread_of_a_pool_waits_for_the_block_of_an_earlier_request(kind: Any, entering: Any) -> None:  # noqa: ANN401  # functions of this file
    store = Asked()
    lock = kind(store)
    (enter, leave), (enter_next, leave_next) = entering(lock), entering(lock)
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as other:
        pool.submit(enter).result()
        while not store.asked.empty():
            store.asked.get()
        later = pool.submit(enter_next)
        later.add_done_callback(store.asked.put)
        store.asked.get(timeout=120)  # its attempt, or its end
        other.submit(leave).result()
        later.result(timeout=120)
        other.submit(leave_next).result()


def test_a_task_that_waits_for_a_task_of_its_own_event_loop_names_the_lock_to_use() -> None:
    async def test() -> None:
        lock = Lock(MemoryStore(), "x")
        is_inside, may_end = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            with lock:
                is_inside.set()
                await may_end.wait()

        holder = asyncio.create_task(hold())
        await is_inside.wait()
        with (
            pytest.raises(
                InvalidInput, match=r"held by another task of this event loop, .* use the Async class of this lock$"
            ),
            lock,
        ):
            pass
        may_end.set()
        await holder
        with lock as lease:
            assert lease.is_trusted

    asyncio.run(test())

"""A block of a lock ends its own lease, whichever thread or task ends it, and in whatever order."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from segmented import AsyncMemoryStore, InvalidInput, Lock, MemoryStore
from segmented.locks import AsyncSemaphore, Semaphore
from segmented.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from segmented import Lease
    from segmented.locks import AsyncLease


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


def test_a_stack_that_another_thread_ends_ends_the_only_block_or_none() -> None:
    semaphore = Semaphore(MemoryStore(), "s", permits=2, ttl=30)
    with ThreadPoolExecutor(1) as other:
        alone = ExitStack()
        lease = alone.enter_context(semaphore)
        other.submit(alone.close).result()
        assert not lease.is_trusted
        stacks = ExitStack(), ExitStack()
        leases = [stack.enter_context(semaphore) for stack in stacks]
        with pytest.raises(InvalidInput, match=r"^which of 2 open blocks of one lock ends is not known"):
            other.submit(stacks[0].close).result()
        assert [lease.is_trusted for lease in leases] == [True, True]
        for lease in leases:
            lease.release()

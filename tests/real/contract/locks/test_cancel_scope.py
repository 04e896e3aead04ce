"""The asyncio cancel scope of a lease: work is cancelled the moment the lease is lost, and nothing else is touched."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from segmented import AsyncLock, AsyncMemoryStore
from segmented.errors import InvalidInput, LeaseLost

if TYPE_CHECKING:
    from segmented import AsyncLease

LONG = 600.0
SOON = 30.0


async def long_lease() -> AsyncLease:
    return await AsyncLock(AsyncMemoryStore(), "door", ttl=LONG).acquire(timeout=0)


async def let_lapse_soon(lease: AsyncLease) -> None:
    """Shorten the rest of a lease; on a machine that stands still it has lapsed already."""
    with suppress(LeaseLost):
        await lease.renew(ttl=0.1)


def test_the_body_is_cancelled_at_the_loss_and_the_scope_raises_it() -> None:
    async def body() -> str:
        lease = await long_lease()
        seen = "nothing"
        with pytest.raises(LeaseLost):  # noqa: PT012  # the scope raises it
            async with asyncio.timeout(SOON), lease.cancel_scope():
                try:
                    await let_lapse_soon(lease)
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    seen = "cancelled"
                    raise
        await asyncio.sleep(0)  # and nothing is left to be cancelled
        return seen

    assert asyncio.run(body()) == "cancelled"


def test_a_body_that_ends_in_time_is_left_alone() -> None:
    async def body() -> int:
        lease = await long_lease()
        async with lease.cancel_scope():
            found = 7
        await let_lapse_soon(lease)
        async with asyncio.timeout(SOON):
            await lease.lost.wait()
        await asyncio.sleep(0)
        return found

    assert asyncio.run(body()) == 7


def test_a_lease_that_is_lost_already_is_refused_before_the_body() -> None:
    async def body() -> None:
        lease = await long_lease()
        await let_lapse_soon(lease)
        await asyncio.sleep(0.15)
        with pytest.raises(LeaseLost):  # the scope raises it
            async with lease.cancel_scope():
                raise AssertionError

    asyncio.run(body())


def test_a_cancellation_from_outside_goes_through_as_one() -> None:
    async def body() -> None:
        lease = await AsyncLock(AsyncMemoryStore(), "door", ttl=LONG).acquire(timeout=0)
        begun = asyncio.Event()

        async def work() -> None:
            async with lease.cancel_scope():
                begun.set()
                await asyncio.sleep(LONG)

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not lease.is_lost

    asyncio.run(body())


def test_a_body_that_finds_the_loss_itself_is_not_cancelled_afterwards() -> None:
    async def body() -> str:
        lease = await long_lease()
        with pytest.raises(LeaseLost):  # noqa: PT012  # the scope raises it
            async with lease.cancel_scope():
                await let_lapse_soon(lease)
                while not lease.is_lost:  # it never waits, so nobody can tell it
                    pass
                lease.require()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "alive"

    assert asyncio.run(body()) == "alive"


def test_the_bodys_own_error_is_not_replaced() -> None:
    async def body() -> None:
        lease = await long_lease()
        with pytest.raises(ZeroDivisionError):  # noqa: PT012  # through the scope
            async with lease.cancel_scope():
                try:
                    await let_lapse_soon(lease)
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    _ = 1 // 0

    asyncio.run(body())


def test_a_body_that_swallows_the_cancellation_is_told_at_the_end() -> None:
    async def body() -> None:
        lease = await long_lease()
        with pytest.raises(LeaseLost):  # noqa: PT012  # the scope raises it
            async with lease.cancel_scope():
                with suppress(asyncio.CancelledError):
                    await let_lapse_soon(lease)
                    await asyncio.sleep(LONG)
        await asyncio.sleep(0)

    asyncio.run(body())


def test_a_scope_is_entered_once() -> None:
    async def body() -> None:
        lease = await AsyncLock(AsyncMemoryStore(), "door", ttl=LONG).acquire(timeout=0)
        scope = lease.cancel_scope()
        async with scope:
            with pytest.raises(InvalidInput, match=r"is entered once, in a task$"):
                await scope.__aenter__()

    asyncio.run(body())

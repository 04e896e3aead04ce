"""The asyncio cancel scope of a lease: work is cancelled the moment the lease is lost, and nothing else is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any

import pytest

from segmented import AsyncLease, AsyncLock, AsyncMemoryStore
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, LeaseLost

TTL = 600.0


def with_a_lease(test: Callable[[AsyncLease, Door], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        async def body() -> None:
            door = Door()
            await test(await AsyncLock(door.store, "door", ttl=TTL).acquire(timeout=0), door)

        asyncio.run(body())

    del run.__wrapped__  # pytest looks there for fixtures
    return run


class Door:
    """A store whose clock only `lapse` moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = AsyncMemoryStore(clock=self.clock)

    def lapse(self) -> None:
        self.clock.advance(TTL)

    async def lose(self, lease: AsyncLease) -> None:
        """End the lease on the store, and let its next renewal find out."""
        await self.store.execute(lease.claim.releasing())
        with suppress(LeaseLost):
            await lease.renew()


@with_a_lease
async def test_the_body_is_cancelled_at_the_loss_and_the_scope_raises_it(lease: AsyncLease, door: Door) -> None:
    seen = "nothing"
    with pytest.raises(LeaseLost):  # noqa: PT012  # the scope raises it
        async with lease.cancel_scope():
            try:
                await door.lose(lease)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen = "cancelled"
                raise
    await asyncio.sleep(0)  # and nothing is left to be cancelled
    assert seen == "cancelled"


@with_a_lease
async def test_a_body_that_ends_in_time_is_left_alone(lease: AsyncLease, door: Door) -> None:
    async with lease.cancel_scope():
        pass
    await door.lose(lease)
    assert lease.lost.is_set()
    await asyncio.sleep(0)


@with_a_lease
async def test_a_lease_that_is_lost_already_is_refused_before_the_body(lease: AsyncLease, door: Door) -> None:
    door.lapse()
    with pytest.raises(LeaseLost):  # the scope raises it
        async with lease.cancel_scope():
            raise AssertionError


@with_a_lease
async def test_a_cancellation_from_outside_goes_through_as_one(lease: AsyncLease, door: Door) -> None:
    del door
    begun = asyncio.Event()

    async def work() -> None:
        async with lease.cancel_scope():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not lease.is_lost


@with_a_lease
async def test_a_body_that_finds_the_loss_itself_is_not_cancelled_afterwards(lease: AsyncLease, door: Door) -> None:
    with pytest.raises(LeaseLost):  # noqa: PT012  # the scope raises it
        async with lease.cancel_scope():
            door.lapse()
            lease.require()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@with_a_lease
async def test_the_bodys_own_error_is_not_replaced(lease: AsyncLease, door: Door) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  # through the scope
        async with lease.cancel_scope():
            try:
                await door.lose(lease)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                _ = 1 // 0


@with_a_lease
async def test_a_body_that_swallows_the_cancellation_is_told_at_the_end(lease: AsyncLease, door: Door) -> None:
    with pytest.raises(LeaseLost):  # noqa: PT012  # the scope raises it
        async with lease.cancel_scope():
            with suppress(asyncio.CancelledError):
                await door.lose(lease)
                await asyncio.Event().wait()
    await asyncio.sleep(0)


@with_a_lease
async def test_a_scope_is_entered_once(lease: AsyncLease, door: Door) -> None:
    del door
    scope = lease.cancel_scope()
    async with scope:
        with pytest.raises(InvalidInput, match=r"is entered once, in a task$"):
            await scope.__aenter__()

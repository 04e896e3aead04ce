"""Asyncio cancels at any await: what was taken meanwhile is given back."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from segmented import AsyncLock, AsyncMemoryStore, AsyncPool, protocol as op
from segmented.clock import ManualClock
from tests.support.contract.parking import lines_of

if TYPE_CHECKING:
    from collections.abc import Awaitable


class SlowReplies(AsyncMemoryStore):
    """A store whose answer to an attempt comes only when it is let go."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock())
        self.has_taken, self.may_answer = asyncio.Event(), asyncio.Event()

    async def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
        answer = await super().execute(operation, deadline=deadline)
        if isinstance(operation, op.AcquireLock | op.Grant):
            self.has_taken.set()
            await self.may_answer.wait()
        return answer

    async def cancelled(self, awaitable: Awaitable[object], *, times: int = 1) -> None:
        """Cancel an attempt that has taken what it asked for, before it learns of that."""
        task = asyncio.ensure_future(awaitable)
        await self.has_taken.wait()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        self.may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(("timeout", "times"), [(0, 1), (60, 1), (60, 3)])
def test_d11_an_acquire_cancelled_while_its_request_is_in_flight_leaves_no_key(timeout: float, times: int) -> None:
    async def body() -> None:
        store = SlowReplies()
        lock = AsyncLock(store, "door", ttl=60)
        await store.cancelled(lock.acquire(timeout=timeout), times=times)
        assert not await lock.is_locked()
        assert lines_of(store) == {}

    asyncio.run(body())


@pytest.mark.parametrize("timeout", [0, 60])
def test_a_grant_cancelled_in_flight_gives_its_units_back(timeout: float) -> None:
    async def body() -> None:
        store = SlowReplies()
        pool = AsyncPool(store, "ticket")
        await pool.open(stock=8, segments=2)
        await store.cancelled(pool.grant("a", quantity=3, timeout=timeout))
        state = await pool.state()
        assert (state.available, state.reserved, state.sequence) == (8, 0, 3)
        assert (await pool.audit()).is_clean
        assert lines_of(store) == {}

    asyncio.run(body())

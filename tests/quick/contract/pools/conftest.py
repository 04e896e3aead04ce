"""A pool of eight units on each store; memory alone, whose clock a test moves; and a pool of merged calls on it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from segmented.clock import ManualClock
from segmented.stock import AsyncPool, Pool
from segmented.stores.memory import AsyncMemoryStore
from tests.fixtures.stores import MEMORY, Side, make_side
from tests.support.contract.pools.merged import SOON, Watched


@pytest.fixture
def pool(side: Side) -> Iterator[Pool]:
    """Eight units in two segments; the audit must be clean at the end."""
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2)
    yield pool
    report = pool.audit()
    assert report.is_clean
    assert report.state.stocked == report.state.available + report.state.reserved + report.state.confirmed


@pytest.fixture
def memory() -> Iterator[Side]:
    """A store whose clock only the test moves."""
    made = make_side(MEMORY[0], ManualClock())
    yield made
    made.close()


@pytest.fixture
def run() -> Callable[[Callable[[AsyncPool, Watched], Awaitable[None]]], None]:
    """Run a scenario on a pool of ten units in three segments, and audit it."""

    async def whole(scenario: Callable[[AsyncPool, Watched], Awaitable[None]]) -> None:
        watched = Watched(AsyncMemoryStore(clock=ManualClock()))
        pool = AsyncPool(watched, "merged")
        await pool.open(stock=10, segments=3)
        async with asyncio.timeout(SOON):
            await scenario(pool, watched)
        assert (await pool.audit()).is_clean

    return lambda scenario: asyncio.run(whole(scenario))

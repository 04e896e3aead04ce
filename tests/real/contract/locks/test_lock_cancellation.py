"""Asyncio cancels at any await: nothing may stay behind, on the server or in the line."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest

from segmented import protocol as op
from segmented.locks import AsyncLock
from segmented.plans.drivers import AsyncStore
from segmented.stock import AsyncPool
from segmented.stores.memory import AsyncMemoryStore
from segmented.stores.redis import AsyncRedisStore
from tests.support.contract.parking import lines_of, parked
from tests.support.proxy import RedisProxy

_numbers = count()


def new_name() -> str:
    return f"cancelled-{next(_numbers)}"


def run(test: Callable[[AsyncRedisStore], Coroutine[Any, Any, None]], url: str) -> None:
    async def with_store() -> None:
        async with await AsyncRedisStore.from_url(url) as store:
            await test(store)

    asyncio.run(with_store())


def test_d2_when_the_waiter_that_was_woken_is_cancelled_the_next_one_gets_the_lock(
    proxy: RedisProxy, valkey_url: str
) -> None:
    async def body(store: AsyncRedisStore) -> None:
        lock = AsyncLock(store, new_name(), ttl=60)
        held = await lock.acquire(timeout=0)
        woken, spare = (asyncio.ensure_future(lock.acquire(timeout=60)) for _ in range(2))
        await parked(store, 2)
        proxy.hold(b"EVAL|DELIFEQ")
        async with await AsyncRedisStore.from_url(valkey_url) as direct:
            await direct.execute(op.ReleaseLock(lock.name, held.holder_id))
            assert await asyncio.to_thread(proxy.holding.wait, 120)
        woken.cancel()
        proxy.let_go()
        lease = await asyncio.wait_for(spare, 120)
        await asyncio.wait([woken], timeout=120)
        assert woken.cancelled()
        await lease.release()

    run(body, proxy.url)


def test_a_waiter_cancelled_again_while_it_undoes_gives_its_place_up_all_the_same(proxy: RedisProxy) -> None:
    async def body(store: AsyncRedisStore) -> None:
        lock = AsyncLock(store, new_name(), ttl=60)
        held = await lock.acquire(timeout=0)
        waiter = asyncio.ensure_future(lock.acquire(timeout=60))
        await parked(store, 1)
        proxy.hold(b"EVAL|DELIFEQ")
        waiter.cancel()
        assert await asyncio.to_thread(proxy.holding.wait, 120)
        waiter.cancel()
        await asyncio.sleep(0)
        proxy.let_go()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert lines_of(store) == {}
        await held.release()

    run(body, proxy.url)


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_grant_cancelled_while_it_waits_is_a_cancellation_and_leaves_the_line(kind: str, valkey_url: str) -> None:
    async def body(store: AsyncStore) -> None:
        pool = AsyncPool(store, new_name())
        await pool.open(stock=8, segments=1)
        held = await pool.grant("held", timeout=0)
        waiters = [asyncio.ensure_future(pool.grant(f"o{index}", timeout=60)) for index in range(2)]
        await parked(store, 2)
        waiters[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiters[0]
        await held.confirm()  # type: ignore[union-attr]  # it was granted
        granted = await asyncio.wait_for(waiters[1], 120)
        await granted.confirm()  # type: ignore[union-attr]  # it was granted
        assert lines_of(store) == {}
        assert (await pool.state()).confirmed == 2

    if kind == "memory":
        asyncio.run(body(AsyncMemoryStore()))
    else:
        run(body, valkey_url)

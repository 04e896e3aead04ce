"""Concurrent calls of one event loop on a real server: one batch, nothing kept for nobody, a loop that was closed."""

import asyncio
import gc
import logging

import pytest

from segmented.models import Reserved, SoldOut
from segmented.stock import AsyncPool
from segmented.stores.redis import AsyncRedisStore
from tests.support.contract.pools.merged import Watched, until


def test_calls_that_begin_together_are_one_batch_and_a_cancelled_one_is_given_back(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "segmented.stock")

    async def scenario() -> None:
        async with await AsyncRedisStore.from_url(valkey_url) as connected:
            store = Watched(connected)
            pool = AsyncPool(store, "merged on a server")
            await pool.open(stock=10, segments=3)
            answers = await asyncio.gather(*(pool.reserve(f"o{index}", quantity=4) for index in range(3)))
            assert (store.batches, [type(answer) for answer in answers]) == ([3], [Reserved, Reserved, SoldOut])
            store.hold()
            gone = asyncio.create_task(pool.reserve("gone"))
            await until(lambda: store.batches == [3, 1])
            gone.cancel()
            store.let_go()
            await until(lambda: "reservations.given_back" in caplog.text)
            assert (await pool.state()).reserved == 8
            assert (await pool.audit()).is_clean

    asyncio.run(scenario())


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the sockets that the closed loop left
def test_an_order_goes_through_in_the_next_event_loop(valkey_url: str) -> None:
    stores: list[AsyncRedisStore] = []
    pools: list[AsyncPool] = []

    async def begin() -> None:
        stores.append(await AsyncRedisStore.from_url(valkey_url))
        pools.append(AsyncPool(stores[0], "moved"))
        await pools[0].open(stock=10, segments=2)
        await pools[0].reserve("first")

    async def go_on() -> None:
        assert isinstance(await pools[0].reserve("second"), Reserved)
        await stores[0].close()

    asyncio.run(begin())
    asyncio.run(go_on())
    pools.clear()
    stores.clear()
    gc.collect()

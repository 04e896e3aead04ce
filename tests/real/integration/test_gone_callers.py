"""Callers of asyncio that go away, and refusals, on one server and on a cluster, of pools in one shard and in six."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from math import inf
from typing import Any, Final

import pytest
from redis import asyncio as redis_asyncio

from segmented import protocol as op
from segmented.models import Cart, CartReserved, Order, Reserved
from segmented.plans.drivers import AsyncStore
from segmented.stock import AsyncCarts, AsyncPool, AsyncShardedPool
from segmented.stores.redis import AsyncRedisStore
from tests.support.proxy import LOOPBACK

pytestmark = pytest.mark.usefixtures("patient_shards")

AnyPool = AsyncPool | AsyncShardedPool
TAKING: Final = (op.ReserveMany, op.Reserve, op.Grant)
ROUNDS: Final = 58
SOON: Final = 200.0
PLACES: Final = ("server", "cluster, in shards")
_names = count()


class SlowStore:
    """A store whose answers to what takes units come only once they are let go."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self.clock, self.wakeups = store.clock, store.wakeups
        self._open = asyncio.Event()
        self._open.set()
        self.held = 0
        self.undone = 0
        """How many orders were cancelled for callers that were gone."""

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    async def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # the operation's own answer
        answer = await self._store.execute(operation, deadline=deadline)
        if isinstance(operation, TAKING):
            await self._held_back()
        if isinstance(operation, op.SettleMany) and operation.unheard:
            self.undone += len(operation.order_ids)
        if isinstance(operation, op.Cancel) and operation.unheard:
            self.undone += 1
        return answer

    async def execute_many(self, operations: Sequence[op.Operation[Any]], *, deadline: float = inf) -> list[Any]:
        answers = await self._store.execute_many(tuple(operations), deadline=deadline)
        if any(isinstance(operation, TAKING) for operation in operations):
            await self._held_back()
        return answers

    async def close(self) -> None:
        await self._store.close()

    async def _held_back(self) -> None:
        self.held += 1
        try:
            await self._open.wait()
        finally:
            self.held -= 1


@pytest.fixture(params=PLACES)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[AnyPool, SlowStore], Awaitable[None]]], None]:
    """Run a scenario on a pool of 2,000 units, and audit it."""
    place: str = request.param
    where: Any = request.getfixturevalue("cluster" if place.startswith("cluster") else "valkey_url")

    async def connected() -> AsyncRedisStore:
        if isinstance(where, str):
            return await AsyncRedisStore.from_url(where)
        return AsyncRedisStore(redis_asyncio.RedisCluster(host=LOOPBACK, port=where.nodes[0].port))

    async def whole(scenario: Callable[[AnyPool, SlowStore], Awaitable[None]]) -> None:
        inner = await connected()
        store = SlowStore(inner)
        sku = f"gone-{next(_names)}"
        pool: AnyPool
        if place.endswith("in shards"):
            pool = AsyncShardedPool(store, sku, hold=600)
            await pool.open(stock=2_000, segments=12, shards=6)
        else:
            pool = AsyncPool(store, sku, hold=600)
            await pool.open(stock=2_000, segments=12)
        async with asyncio.timeout(SOON):
            await scenario(pool, store)
        assert (await pool.audit()).is_clean
        await inner.close()
        if not isinstance(where, str):
            await inner.client.aclose()

    return lambda scenario: asyncio.run(whole(scenario))


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  # bounded by the scenario's time-out
        await asyncio.sleep(0.001)


async def gives_up(call: Awaitable[object], store: SlowStore) -> None:
    """Cancel a call, as a timeout does, once the server has done it, and before its answer comes."""
    store.hold()
    task = asyncio.ensure_future(call)
    await until(lambda: store.held > 0)
    task.cancel()
    await asyncio.sleep(0)
    store.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_58_of_58_orders_whose_reservation_was_given_up_are_reserved_by_the_repeat(
    run: Callable[[Callable[[AnyPool, SlowStore], Awaitable[None]]], None],
) -> None:
    async def scenario(pool: AnyPool, store: SlowStore) -> None:
        answers = []
        for number in range(ROUNDS):
            await gives_up(pool.reserve(f"o{number}", quantity=3), store)
            await until(lambda: store.undone == number + 1)  # noqa: B023  # awaited here
            answers.append(await pool.reserve(f"o{number}", quantity=3))
        assert [(type(one), getattr(one, "replay", None)) for one in answers] == [(Reserved, False)] * ROUNDS
        state = await pool.state()
        assert (state.available, state.reserved) == (2_000 - 3 * ROUNDS, 3 * ROUNDS)

    run(scenario)


def test_batches_and_carts_that_were_given_up_are_reserved_by_the_repeat(
    run: Callable[[Callable[[AnyPool, SlowStore], Awaitable[None]]], None],
) -> None:
    async def scenario(pool: AnyPool, store: SlowStore) -> None:
        for number in range(10):
            orders = [Order(f"o{number}-{index}", 2) for index in range(5)]
            await gives_up(pool.reserve_many(orders), store)
            assert [type(one) for one in await pool.reserve_many(orders)] == [Reserved] * 5
        assert (await pool.state()).reserved == 100
        if isinstance(pool, AsyncShardedPool):
            return
        for number in range(10):
            cart = Cart(f"c{number}", [(pool.sku, 3)])
            await gives_up(AsyncCarts(store).reserve(cart), store)
            assert isinstance(await AsyncCarts(store).reserve(cart), CartReserved)
        assert (await pool.state()).reserved == 130

    run(scenario)

"""A reentrant lock behind a proxy that loses replies, and in asyncio, where anything may be cancelled or handed on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest
import redis

from segmented.clock import SystemClock
from segmented.errors import StoreUnavailable
from segmented.keys import reentrant_keys
from segmented.locks.reentrant import AsyncReentrantLock, ReentrantLock, task_owner
from segmented.stores.memory import AsyncMemoryStore
from segmented.stores.redis import AsyncRedisStore
from tests.fixtures.stores import REDIS, Side, make_side
from tests.support.contract.parking import parked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.flavour import Flavour
    from tests.support.proxy import RedisProxy

SCRIPT = b"EVALSHA"


@pytest.fixture(params=[REDIS[0], REDIS[-1]], ids=str)
def far_side(request: pytest.FixtureRequest, proxy: RedisProxy, valkey_url: str) -> Iterator[Side]:
    """A store behind the proxy, used once; its `raw` client is not behind it."""
    flavour: Flavour = request.param
    side = make_side(flavour, SystemClock(), proxy.url)
    side.raw().close()
    side.server = redis.Redis.from_url(valkey_url, decode_responses=True)
    made(side, side.name()).acquire(owner="warm").release()
    yield side
    proxy.let_go()
    side.close()


def made(side: Side, name: str) -> ReentrantLock:
    return side.made(
        lambda store: ReentrantLock(store, name, renew=False),
        lambda store: AsyncReentrantLock(store, name, renew=False),
    )


def count(side: Side, name: str) -> dict[str, str]:
    return cast("dict[str, str]", side.raw().hgetall(reentrant_keys(name).lock))


def test_e1_entries_whose_replies_were_lost_count_once_each(far_side: Side, proxy: RedisProxy) -> None:
    name = far_side.name("lock")
    lock = made(far_side, name)
    leases = []
    for entered in (1, 2):
        proxy.swallow_replies(1, to=SCRIPT)
        leases.append(lock.acquire(owner="a", timeout=30))
        assert count(far_side, name) == {"owner:a": str(entered)}
    assert proxy.swallowed == 2
    for lease in leases:
        lease.release()
    assert count(far_side, name) == {}


def test_a7_releases_whose_replies_were_lost_take_one_off_each(far_side: Side, proxy: RedisProxy) -> None:
    name = far_side.name("lock")
    lock = made(far_side, name)
    leases = [lock.acquire(owner="a") for _ in range(3)]
    for left in ({"owner:a": "2"}, {"owner:a": "1"}, {}):
        proxy.swallow_replies(1, to=SCRIPT)
        leases.pop().release()
        assert count(far_side, name) == left
    assert proxy.swallowed == 3


def test_a6_a_release_that_never_got_a_reply_is_called_again_and_takes_one_off(
    far_side: Side, proxy: RedisProxy
) -> None:
    name = far_side.name("lock")
    lock = made(far_side, name)
    outer, inner = lock.acquire(owner="a"), lock.acquire(owner="a")
    proxy.swallow_replies(10, to=SCRIPT)
    with pytest.raises(StoreUnavailable):
        inner.release()
    proxy.swallow_replies(0, to=SCRIPT)
    inner.release()
    assert count(far_side, name) == {"owner:a": "1"}
    outer.release()
    assert count(far_side, name) == {}


def test_an_entry_that_never_got_a_reply_takes_itself_back_and_leaves_the_others(
    far_side: Side, proxy: RedisProxy
) -> None:
    name = far_side.name("lock")
    lock = made(far_side, name)
    outer = lock.acquire(owner="a")
    proxy.swallow_replies(2, to=SCRIPT)
    with pytest.raises(StoreUnavailable):
        lock.acquire(owner="a", timeout=0)
    assert count(far_side, name) == {"owner:a": "1"}
    outer.release()


# --- asyncio ---


def test_h2_h3_neither_a_sibling_nor_a_child_enters_as_the_task_that_holds() -> None:
    async def body() -> None:
        lock = AsyncReentrantLock(AsyncMemoryStore(), "door", owner=task_owner)

        async def sibling() -> bool:
            return await lock.try_acquire() is None

        async with lock.acquire() as outer, lock.acquire() as inner:
            assert inner.fencing_token == outer.fencing_token
            assert await asyncio.create_task(sibling())
            assert all(await asyncio.gather(sibling(), sibling()))
        assert not await sibling()

    asyncio.run(body())


def test_an_acquire_belongs_to_the_task_that_calls_it_also_if_another_awaits_it() -> None:
    async def body() -> None:
        lock = AsyncReentrantLock(AsyncMemoryStore(), "door", owner=task_owner)
        outer = await lock.acquire()
        inner = await asyncio.ensure_future(lock.acquire())
        tried = await asyncio.ensure_future(lock.try_acquire())
        assert tried is not None
        for lease in (tried, inner, outer):
            await lease.release()
        assert await lock.try_acquire(owner="anybody") is not None

    asyncio.run(body())


def test_d11_an_entry_that_is_cancelled_while_it_waits_leaves_nothing(valkey_url: str) -> None:
    async def body() -> None:
        async with await AsyncRedisStore.from_url(valkey_url) as store:
            lock = AsyncReentrantLock(store, "cancelled-reentrant")
            held = await lock.acquire(owner="a")
            waiter = asyncio.ensure_future(lock.acquire(owner="b"))
            await parked(store, 1)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            await held.release()
            keys = reentrant_keys("cancelled-reentrant")
            assert await store.client.exists(keys.lock, keys.entries) == 0

    asyncio.run(body())

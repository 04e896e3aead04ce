"""Storms of cancellations and failed releases: nothing may stay behind, on the server or in the event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Final

import pytest
import redis

from segmented.errors import StoreError
from segmented.keys import lock_keys
from segmented.locks import AsyncLock, Lock, MultiLock
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.support.contract.parking import lines_of, parked, wait_until
from tests.support.proxy import RedisProxy

TTL: Final = 600.0
SOON: Final = 120.0
_numbers = count()


def new_names(wanted: int) -> list[str]:
    return [f"storm-{next(_numbers)}" for _ in range(wanted)]


def keys_left(url: str, names: list[str]) -> int:
    with redis.Redis.from_url(url) as server:
        found: int = server.exists(*(lock_keys(name).lock for name in names))
        return found


def run(test: Callable[[AsyncRedisStore], Coroutine[Any, Any, None]], url: str) -> None:
    async def with_store() -> None:
        async with await AsyncRedisStore.from_url(url) as store:
            await test(store)
            assert lines_of(store) == {}
        async with asyncio.timeout(SOON):
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110  # a keeper ends on its own
                await asyncio.sleep(0.01)

    asyncio.run(with_store())


def test_tasks_that_end_at_once_and_are_cancelled_in_the_release_leave_no_lock(valkey_url: str) -> None:
    """They are cancelled while the release is on its way."""
    tasks = 300
    names = new_names(tasks)

    async def body(store: AsyncRedisStore) -> None:
        begin = asyncio.Event()
        held: list[str] = []

        async def work(name: str) -> None:
            async with AsyncLock(store, name, ttl=TTL).acquire(timeout=600):
                held.append(name)
                await begin.wait()

        working = [asyncio.ensure_future(work(name)) for name in names]
        async with asyncio.timeout(SOON):
            while len(held) < tasks:  # noqa: ASYNC110  # the tasks have no event for all of them
                await asyncio.sleep(0.01)
        begin.set()
        await asyncio.sleep(0.01)
        for task in working:
            task.cancel()
        await asyncio.wait(working)

    run(body, valkey_url)
    assert keys_left(valkey_url, names) == 0


def test_a_hand_over_whose_releaser_and_waiter_are_both_cancelled_leaves_no_lock(
    proxy: RedisProxy, valkey_url: str
) -> None:
    names = new_names(1)

    async def body(store: AsyncRedisStore) -> None:
        lock = AsyncLock(store, names[0], ttl=TTL)
        held = await lock.acquire(timeout=0)
        waiter = asyncio.ensure_future(lock.acquire(timeout=600))
        await parked(store, 1)
        proxy.hold(b"EVAL|DELIFEQ")
        releaser = asyncio.ensure_future(held.release())
        assert await asyncio.to_thread(proxy.holding.wait, 120)
        for _ in range(2):
            releaser.cancel()
            waiter.cancel()
            await asyncio.sleep(0)
        proxy.let_go()
        await asyncio.wait([releaser, waiter])
        assert (releaser.cancelled(), waiter.cancelled()) == (True, True)

    run(body, proxy.url)
    assert keys_left(valkey_url, names) == 0


# --- releases that fail ---


def test_a_release_that_failed_is_repeated_when_the_server_is_back(proxy: RedisProxy, valkey_url: str) -> None:
    names = new_names(3)
    with RedisStore.from_url(proxy.url) as store:
        lease = Lock(store, names[0], ttl=TTL).acquire(timeout=0)
        both = MultiLock(store, names[1:], ttl=TTL).acquire(timeout=0)
        lost: list[str] = []
        lease.on_lost(lambda: lost.append("lost"))
        proxy.vanish()
        with pytest.raises(StoreError):
            lease.release()
        with pytest.raises(StoreError):
            both.release()
        assert keys_left(valkey_url, names) == 3
        proxy.come_back()
        wait_until(lambda: keys_left(valkey_url, names) == 0)
        wait_until(lambda: lease.has_ended and both.has_ended)
        lease.release()
        both.release()
        assert lost == []


def test_a_failed_release_that_is_repeated_leaves_a_successor_alone(proxy: RedisProxy, valkey_url: str) -> None:
    (name,) = new_names(1)
    with RedisStore.from_url(proxy.url) as store, RedisStore.from_url(valkey_url) as other:
        lease = Lock(store, name, ttl=TTL).acquire(timeout=0)
        proxy.vanish()
        with pytest.raises(StoreError):
            lease.release()
        other.client.delete(lock_keys(name).lock)
        with Lock(other, name, ttl=TTL).acquire(timeout=0):
            proxy.come_back()
            wait_until(lambda: lease.has_ended or lease.is_lost)
            assert keys_left(valkey_url, [name]) == 1

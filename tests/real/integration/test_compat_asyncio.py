"""`segmented.compat.AsyncLock`: redis-py's lock interface for asyncio."""

from __future__ import annotations

import asyncio
import gc
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest
from redis import asyncio as redis_asyncio

from segmented import compat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Test = Callable[[redis_asyncio.Redis], Awaitable[None]]
    Run = Callable[[Test], None]

LONG: Final = 600.0
"""Seconds; no lease lapses in a test."""
SOON: Final = 60.0

_numbers = count()


@pytest.fixture
def name() -> str:
    return f"async-compat-{next(_numbers)}"


@pytest.fixture
def run(valkey_url: str) -> Run:
    """Run a coroutine function with a client, in a loop of its own."""

    async def with_client(test: Test) -> None:
        client = redis_asyncio.Redis.from_url(valkey_url, protocol=3, decode_responses=True)
        await test(client)
        await compat.async_store_of(client).close()
        await client.aclose()

    return lambda test: asyncio.run(with_client(test))


def lock_of(client: redis_asyncio.Redis, name: str, **options: Any) -> compat.AsyncLock:  # noqa: ANN401  # the lock's own
    found: object = client.lock(name, lock_class=compat.AsyncLock, **options)  # type: ignore[arg-type]  # redis-py's own
    assert isinstance(found, compat.AsyncLock)
    return found


def test_a_client_has_one_store_a_loop(valkey_url: str) -> None:
    client = redis_asyncio.Redis.from_url(valkey_url)

    async def look() -> tuple[object, bool]:
        found = compat.async_store_of(client)
        lock_of(client, "door")
        return found, compat.async_store_of(client) is found

    first, second = asyncio.run(look()), asyncio.run(look())
    assert (first[1], second[1]) == (True, True)
    assert first[0] is not second[0]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_ends_though_the_store_of_a_waiter_was_not_closed(valkey_url: str, name: str) -> None:
    async def leave() -> None:
        pool = redis_asyncio.ConnectionPool.from_url(valkey_url)
        client = redis_asyncio.Redis(connection_pool=pool)
        lock = lock_of(client, name, timeout=LONG)
        assert await lock.acquire()
        assert not await lock_of(client, name).acquire(blocking_timeout=0.1)
        await lock.release()
        await pool.disconnect()

    asyncio.run(leave())
    gc.collect()  # the connections that nobody closed are complained of here, where that is expected


def test_a_client_that_was_closed_and_collected_takes_its_store_along(run: Run, valkey_url: str, name: str) -> None:
    async def scenario(client: redis_asyncio.Redis) -> None:
        tasks = len(asyncio.all_tasks())
        for _ in range(2):
            other = redis_asyncio.Redis.from_url(valkey_url, client_name=name)
            lock = compat.AsyncLock(other, name, timeout=LONG)
            async with lock:
                late = asyncio.ensure_future(compat.AsyncLock(other, name, timeout=LONG).acquire())
                while not any(found["name"] == name and found["sub"] != "0" for found in await client.client_list()):
                    assert not late.done()  # it waits, and so listens
                late.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await late
            await other.aclose()
            del other, lock, late
            gc.collect()
        end = time.monotonic() + SOON
        while left := [found for found in await client.client_list() if found["name"] == name]:
            assert time.monotonic() < end, left
            await asyncio.sleep(0.02)
        while len(asyncio.all_tasks()) > tasks:
            assert time.monotonic() < end, asyncio.all_tasks()
            await asyncio.sleep(0.02)

    run(scenario)

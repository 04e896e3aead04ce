"""Waiting to read and to write: woken, never polling, and nothing left behind. The ids are the catalogue's rows."""

import asyncio
from collections.abc import Iterator

import pytest

from segmented.clock import SystemClock
from segmented.errors import StoreUnavailable
from segmented.locks import AsyncReadWriteLock, ReadWriteLock, UnreachablePolicy, Work
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.fixtures.stores import REDIS, Side, make_side
from tests.support.contract.locks.shared import LONG, PATIENCE, SOON, book, start_waiting
from tests.support.contract.parking import parked
from tests.support.proxy import RedisProxy

BOTH_COLOURS = [REDIS[0], REDIS[-1]]


@pytest.fixture(params=BOTH_COLOURS, ids=str)
def two_sides(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on one server."""
    first, second = (make_side(request.param, SystemClock(), valkey_url) for _ in range(2))
    yield first, second
    first.close()
    second.close()


def test_readers_and_a_writer_of_other_processes_are_woken(two_sides: tuple[Side, Side]) -> None:
    ours, theirs = two_sides
    name = ours.name("book")
    held = book(theirs, name).write.acquire(timeout=0)
    readers = [start_waiting(one, book(one, name).read, 3) for one in two_sides]
    held.release()
    for reader in [*readers[0], *readers[1]]:
        reader.result(SOON)
    (writer,) = start_waiting(ours, book(ours, name).write)
    for reader in [*readers[0], *readers[1]]:
        assert not writer.done()
        reader.result().release()
    writer.result(SOON).release()


# --- cancelled, lost, refused ---


def test_d12_a_writer_cancelled_while_it_waits_opens_the_door(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.read_write.PRESENCE_MS_MAX", 600_000)  # the door stays shut meanwhile

    async def body() -> None:
        async with await AsyncRedisStore.from_url(valkey_url) as store:
            lock = AsyncReadWriteLock(store, "book-given-up", ttl=LONG)
            reader = await lock.read.acquire(timeout=0)
            writer = asyncio.ensure_future(lock.write.acquire(timeout=LONG))
            await parked(store, 1)
            assert await lock.read.try_acquire() is None
            late = asyncio.ensure_future(lock.read.acquire(timeout=PATIENCE))
            writer.cancel()
            await (await asyncio.wait_for(late, SOON)).release()
            await reader.release()

    asyncio.run(body())


def test_a_writers_lost_reply_leaves_no_presence(proxy: RedisProxy, valkey_url: str) -> None:
    name = "book-lost-presence"
    with RedisStore.from_url(valkey_url) as near, RedisStore.from_url(proxy.url) as far:
        reader = ReadWriteLock(near, name, ttl=LONG).read.acquire(timeout=0)
        lock = ReadWriteLock(far, name, ttl=LONG)
        lock.read.acquire(timeout=0).release()
        proxy.swallow_replies(2, to=b"EVALSHA")
        with pytest.raises(StoreUnavailable), UnreachablePolicy().around(Work("book")):
            lock.write.acquire(timeout=5)
        ReadWriteLock(near, name, ttl=LONG).read.acquire(timeout=0).release()
        reader.release()

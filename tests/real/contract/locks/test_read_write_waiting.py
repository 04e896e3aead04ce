"""Waiting to read and to write: woken, never polling, and nothing left behind. The ids are the catalogue's rows."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
import redis

from segmented import protocol as op
from segmented.clock import SystemClock
from segmented.errors import LeaseLost, StoreUnavailable
from segmented.keys import read_write_keys
from segmented.locks import AsyncReadWriteLock, ReadWriteLock, UnreachablePolicy, Work
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.fixtures.stores import REDIS, Side, make_side
from tests.support.contract.locks.shared import LONG, PATIENCE, SOON, book, start_waiting
from tests.support.contract.parking import lines_of, parked, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.contract.parking import CountScripts
    from tests.support.proxy import RedisProxy

BOTH_COLOURS = [REDIS[0], REDIS[-1]]


@pytest.fixture(params=BOTH_COLOURS, ids=str)
def two_sides(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on one server."""
    first, second = (make_side(request.param, SystemClock(), valkey_url) for _ in range(2))
    yield first, second
    first.close()
    second.close()


def test_readers_who_wait_in_one_process_all_get_in_after_the_writer(waiting_side: Side) -> None:
    lock = book(waiting_side, waiting_side.name("book"))
    writer = lock.write.acquire(timeout=0)
    readers = start_waiting(waiting_side, lock.read, 6)
    writer.release()
    leases = [reader.result(SOON) for reader in readers]
    assert len({lease.fencing_token for lease in leases}) == 1
    for lease in leases:
        lease.release()


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


def test_d15_a_writer_behind_a_reader_behind_a_writer_and_all_get_in(two_sides: tuple[Side, Side]) -> None:
    ours, theirs = two_sides
    name = ours.name("book")
    held = book(ours, name).write.acquire(timeout=0)
    (reader,) = start_waiting(theirs, book(theirs, name).read)
    (writer,) = start_waiting(ours, book(ours, name).write)
    held.release()
    writer.result(SOON).release()
    reader.result(SOON).release()


def test_a_writer_wakes_as_the_last_dead_readers_lease_ends(waiting_side: Side) -> None:
    name = waiting_side.name("book")
    began = time.monotonic()
    for ttl_ms in (100, 300):
        waiting_side.execute(op.AcquireRead(name, f"dead {ttl_ms}", ttl_ms))
    book(waiting_side, name).write.acquire(timeout=PATIENCE).release()
    assert time.monotonic() - began > 0.2


def test_a_writer_learns_of_an_earlier_end_when_the_reader_that_was_to_end_last_goes(
    waiting_side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = waiting_side.name("book")
    book(waiting_side, name, ttl=2.0).read.acquire(timeout=0)
    last = book(waiting_side, name).read.acquire(timeout=0)
    monkeypatch.setattr("segmented.locks.read_write.PRESENCE_MS_MAX", 600_000)  # it does not look by itself before
    (writer,) = start_waiting(waiting_side, book(waiting_side, name).write, timeout=LONG)
    last.release()
    writer.result(SOON).release()


def test_a_writer_that_waits_looks_in_every_third_of_its_presence(
    redis_side: Side, count_scripts: CountScripts
) -> None:
    name, server = redis_side.name("book"), redis_side.raw()
    for handle in (book(redis_side, name).read, book(redis_side, name).write):
        handle.acquire(timeout=0).release()  # the scripts are cached now
    reader = book(redis_side, name).read.acquire(timeout=0)
    scripts, began = count_scripts(server, name), time.monotonic()
    writer = redis_side.start(lambda: book(redis_side, name, ttl=0.3).write.acquire(timeout=PATIENCE))
    wait_until(lambda: scripts() >= 6)
    count, seconds = scripts(), time.monotonic() - began
    assert count <= 3 + seconds / 0.1  # two to begin with, and one each 0.1 s at most
    reader.release()
    assert isinstance(writer.exception(SOON), LeaseLost | None)  # on a machine that stands still its lease is over
    assert server.zcard(read_write_keys(name).writers) == 0


def test_one_release_wakes_no_more_readers_than_can_get_in_one_after_another(
    two_sides: tuple[Side, Side], count_scripts: CountScripts
) -> None:
    side, _ = two_sides
    name = side.name("book")
    for handle in (book(side, name).read, book(side, name).write):
        handle.acquire(timeout=0).release()  # the scripts are cached now
    held = book(side, name).write.acquire(timeout=0)
    readers = start_waiting(side, book(side, name).read, 20)
    scripts = count_scripts(side.raw(), name)
    held.release()
    leases = [reader.result(SOON) for reader in readers]
    assert scripts() == 1 + 20
    for lease in leases:
        lease.release()


# --- cancelled, lost, refused ---


@pytest.mark.parametrize("kind", ["read", "write"])
def test_d11_an_acquire_cancelled_in_flight_leaves_nothing_behind(
    proxy: RedisProxy, valkey_url: str, kind: str
) -> None:
    name = f"book-cancelled-{kind}"

    async def body() -> None:
        async with await AsyncRedisStore.from_url(proxy.url) as store:
            lock = AsyncReadWriteLock(store, name, ttl=LONG)
            await (await lock.read.acquire(timeout=0)).release()
            proxy.hold(b"EVAL")
            task = asyncio.ensure_future(getattr(lock, kind).acquire(timeout=PATIENCE))
            assert await asyncio.to_thread(proxy.holding.wait, SOON)
            task.cancel()
            await asyncio.sleep(0)
            proxy.let_go()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lines_of(store) == {}

    asyncio.run(body())
    keys = read_write_keys(name)
    with redis.Redis.from_url(valkey_url) as server:
        assert server.exists(keys.lock, keys.readers, keys.writers) == 0


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


@pytest.mark.parametrize("kind", ["read", "write"])
def test_e1_an_acquire_whose_reply_was_lost_succeeds_with_the_lease_it_took(
    proxy: RedisProxy, valkey_url: str, kind: str
) -> None:
    name = f"book-lost-reply-{kind}"
    with RedisStore.from_url(proxy.url) as store:
        handle = getattr(ReadWriteLock(store, name, ttl=LONG), kind)
        handle.acquire(timeout=0).release()
        proxy.swallow_replies(1, to=b"EVALSHA")
        lease = handle.acquire(timeout=0)
        assert proxy.swallowed == 1
        proxy.swallow_replies(1, to=b"EVALSHA")
        lease.release()
        assert proxy.swallowed == 2
    with redis.Redis.from_url(valkey_url) as server:
        assert server.exists(read_write_keys(name).lock) == 0


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

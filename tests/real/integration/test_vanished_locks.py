"""A waiter learns within a second that what it waits for is gone without a message. Real servers."""

import asyncio
import threading
from functools import partial
from math import inf
from typing import Final

import pytest

from segmented import AsyncLock, AsyncRedisStore, Lock, Pool, RedisStore
from segmented.errors import StockError
from segmented.keys import lock_keys
from segmented.servers import ValkeyServer
from tests.support.contract.parking import has_come_to_rest, lines_of, parked, wait_until

LONG: Final = 600.0
"""Longer than a test may take: who waits for the end of a lease fails it."""
WITHIN_SECONDS: Final = 1.0
WAYS: Final = ["FLUSHALL", f"DEL {lock_keys('door').lock}"]


def next_look(store: RedisStore) -> float:
    """Return in how many seconds the first waiter asks again by itself, as it has decided before it fell asleep."""
    (line,) = lines_of(store).values()
    wait_until(lambda: line.due < inf)  # it is asking in another thread
    return line.due - store.clock.now()


@pytest.mark.parametrize("way", WAYS)
def test_a_waiting_thread_takes_a_lock_within_a_second_of_its_vanishing(private_valkey: ValkeyServer, way: str) -> None:
    with RedisStore.from_url(private_valkey.url) as store, RedisStore.from_url(private_valkey.url) as other:
        Lock(other, "door", ttl=LONG).acquire(timeout=0)
        taken: list[int] = []

        def wait() -> None:
            with Lock(store, "door", ttl=LONG).acquire(timeout=LONG) as lease:
                taken.append(lease.fencing_token)

        waiters = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
        for count, waiter in enumerate(waiters, 1):
            waiter.start()
            wait_until(partial(has_come_to_rest, store, count))
        assert next_look(store) <= WITHIN_SECONDS
        other.client.execute_command(*way.split())
        for waiter in waiters:
            waiter.join()
    assert len(set(taken)) == 3


def test_a_waiter_takes_a_lock_within_a_second_of_a_restart_without_data(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store, RedisStore.from_url(private_valkey.url) as other:
        Lock(other, "door", ttl=LONG).acquire(timeout=0)
        leases: list[int] = []

        def wait() -> None:
            with Lock(store, "door", ttl=LONG).acquire(timeout=LONG) as lease:
                leases.append(lease.fencing_token)

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        wait_until(partial(has_come_to_rest, store, 1))
        other.client.config_set("save", "")
        private_valkey.kill()
        private_valkey.restart()
        waiter.join()
    assert len(leases) == 1


def test_a_grant_that_waits_learns_within_a_second_that_its_pool_is_gone(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store, RedisStore.from_url(private_valkey.url) as other:
        Pool(other, "poster", ttl=LONG).open(stock=9, segments=1)
        Pool(other, "poster", ttl=LONG).grant("first").__enter__()
        said: list[str] = []

        def wait() -> None:
            with pytest.raises(StockError), Pool(store, "poster", ttl=LONG).grant("second", timeout=LONG):
                pass
            said.append("gone")

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        wait_until(partial(has_come_to_rest, store, 1))
        other.client.flushall()
        waiter.join()
    assert said == ["gone"]


def test_a_waiting_task_takes_a_lock_within_a_second_of_its_vanishing(private_valkey: ValkeyServer) -> None:
    async def run() -> None:
        async with (
            await AsyncRedisStore.from_url(private_valkey.url) as store,
            await AsyncRedisStore.from_url(private_valkey.url) as other,
        ):
            await AsyncLock(other, "door", ttl=LONG).acquire(timeout=0)
            waiter = asyncio.create_task(AsyncLock(store, "door", ttl=LONG).acquire(timeout=LONG))
            await parked(store, 1)
            await other.client.flushall()
            lease = await waiter
            await lease.release()

    asyncio.run(run())

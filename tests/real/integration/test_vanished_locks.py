"""A waiter learns within a second that what it waits for is gone without a message. Real servers."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import AsyncLock, AsyncRedisStore, Lock, Pool, RedisStore
from segmented.errors import StockError
from segmented.keys import lock_keys
from tests.support.contract.parking import has_come_to_rest, lines_of, parked, wait_until

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

LONG: Final = 60.0
WITHIN_SECONDS: Final = 1.0
BOUND: Final = LONG / 2
"""Far less than the rest of the lease, which ends a wait too, and more than a busy machine stands still."""
WAYS: Final = ["FLUSHALL", "FLUSHDB", f"DEL {lock_keys('door').lock}"]


def next_look(store: Any) -> float:  # noqa: ANN401  # a store of either colour
    """Return in how many seconds the first waiter asks again by itself, as it has decided before it fell asleep."""
    (line,) = lines_of(store).values()
    while (due := line._due) == inf:  # noqa: SLF001  # shown nowhere else; it is asking in another thread
        time.sleep(0.001)
    return float(due - store.clock.now())


@pytest.mark.parametrize("way", WAYS)
def test_a_waiting_thread_takes_a_lock_within_a_second_of_its_vanishing(private_valkey: ValkeyServer, way: str) -> None:
    with RedisStore.from_url(private_valkey.url) as store, RedisStore.from_url(private_valkey.url) as other:
        Lock(other, "door", ttl=LONG).acquire(timeout=0)
        taken_at: list[float] = []

        def wait() -> None:
            with Lock(store, "door", ttl=LONG).acquire(timeout=LONG):
                taken_at.append(time.monotonic())

        waiters = [threading.Thread(target=wait) for _ in range(3)]
        for count, waiter in enumerate(waiters, 1):
            waiter.start()
            wait_until(partial(has_come_to_rest, store, count))
        assert next_look(store) <= WITHIN_SECONDS
        vanished_at = time.monotonic()
        other.client.execute_command(*way.split())
        for waiter in waiters:
            waiter.join()
    assert len(taken_at) == 3
    assert min(taken_at) - vanished_at < BOUND


@pytest.mark.parametrize("way", WAYS)
def test_a_waiting_task_takes_a_lock_within_a_second_of_its_vanishing(private_valkey: ValkeyServer, way: str) -> None:
    async def run() -> float:
        async with (
            await AsyncRedisStore.from_url(private_valkey.url) as store,
            await AsyncRedisStore.from_url(private_valkey.url) as other,
        ):
            await AsyncLock(other, "door", ttl=LONG).acquire(timeout=0)
            waiter = asyncio.create_task(AsyncLock(store, "door", ttl=LONG).acquire(timeout=LONG))
            await parked(store, 1)
            assert next_look(store) <= WITHIN_SECONDS
            vanished_at = time.monotonic()
            await other.client.execute_command(*way.split())
            lease = await waiter
            seconds = time.monotonic() - vanished_at
            await lease.release()
            return seconds

    assert asyncio.run(run()) < BOUND


def test_a_waiter_takes_a_lock_within_a_second_of_a_restart_without_data(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store, RedisStore.from_url(private_valkey.url) as other:
        Lock(other, "door", ttl=LONG).acquire(timeout=0)
        leases: list[float] = []

        def wait() -> None:
            with Lock(store, "door", ttl=LONG).acquire(timeout=LONG):
                leases.append(time.monotonic())

        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(partial(has_come_to_rest, store, 1))
        assert next_look(store) <= WITHIN_SECONDS
        other.client.config_set("save", "")
        private_valkey.kill()
        private_valkey.restart()
        back_at = time.monotonic()
        waiter.join()
    assert leases[0] - back_at < BOUND


def test_a_grant_that_waits_learns_within_a_second_that_its_pool_is_gone(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store, RedisStore.from_url(private_valkey.url) as other:
        Pool(other, "poster", ttl=LONG).open(stock=9, segments=1)
        Pool(other, "poster", ttl=LONG).grant("first").__enter__()
        said: list[float] = []

        def wait() -> None:
            with pytest.raises(StockError), Pool(store, "poster", ttl=LONG).grant("second", timeout=LONG):
                pass
            said.append(time.monotonic())

        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(partial(has_come_to_rest, store, 1))
        assert next_look(store) <= WITHIN_SECONDS
        vanished_at = time.monotonic()
        other.client.flushall()
        waiter.join()
    assert said[0] - vanished_at < BOUND

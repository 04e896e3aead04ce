"""A wait ends at its deadline, whatever the transport does: connecting, sending, and every retry are inside it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
import redis
from redis import asyncio as redis_asyncio

from segmented import AsyncLock, Lock, RedisStore
from segmented.errors import AcquireTimeout, StoreUnavailable
from segmented.locks import UnreachablePolicy, Work
from segmented.stores.redis import AsyncRedisStore

if TYPE_CHECKING:
    from tests.support.servers.deployments import ReplicaPair

WAIT = 0.4


@pytest.fixture
def patient_attempts() -> None:
    """Have the product's own bounds: with longer ones no wait here would end."""


def assert_in_time(began: float) -> None:
    """Check that a wait has lasted for its time; it has ended, although the server still hangs."""
    assert time.monotonic() - began >= WAIT


@pytest.mark.parametrize("is_known", [True, False], ids=["connected-before", "never-connected"])
def test_e2_a_server_that_hangs_ends_a_wait_at_its_deadline(replica_pair: ReplicaPair, *, is_known: bool) -> None:
    store = RedisStore(redis.Redis.from_url(replica_pair.url))
    lock = Lock(store, "hung", ttl=60)
    if is_known:
        lock.acquire(timeout=30).release()
    replica_pair.master.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        Lock(store, "hung", ttl=1).acquire(timeout=WAIT)  # the server may take it when it goes on
    assert_in_time(began)
    replica_pair.master.resume()
    lock.acquire(timeout=30).release()
    store.close()
    store.client.close()


@pytest.mark.parametrize("is_known", [True, False], ids=["connected-before", "never-connected"])
def test_e2_the_same_for_asyncio(replica_pair: ReplicaPair, *, is_known: bool) -> None:
    async def body() -> None:
        store = AsyncRedisStore(redis_asyncio.Redis.from_url(replica_pair.url))
        lock = AsyncLock(store, "hung", ttl=60)
        if is_known:
            await (await lock.acquire(timeout=30)).release()
        replica_pair.master.pause()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await AsyncLock(store, "hung", ttl=1).acquire(timeout=WAIT)  # the server may take it when it goes on
        assert_in_time(began)
        replica_pair.master.resume()
        await (await lock.acquire(timeout=30)).release()
        await store.close()
        await store.client.aclose()

    asyncio.run(body())


def test_e2_a_server_that_hangs_while_a_waiter_is_parked_ends_the_wait_at_its_deadline(
    replica_pair: ReplicaPair,
) -> None:
    with redis.Redis.from_url(replica_pair.url) as client, RedisStore(client) as store:
        held = Lock(store, "parked", ttl=60).acquire(timeout=0)
        with pytest.raises(AcquireTimeout):
            Lock(store, "parked").acquire(timeout=1)
        replica_pair.master.pause()
        began = time.monotonic()
        with pytest.raises((AcquireTimeout, StoreUnavailable)):
            Lock(store, "parked").acquire(timeout=WAIT)
        assert_in_time(began)
        replica_pair.master.resume()
        held.release()


def test_a_server_that_is_not_there_is_told_at_once_in_a_policys_block(replica_pair: ReplicaPair) -> None:
    store = RedisStore(redis.Redis(port=replica_pair.master.ports["port"] + 1, socket_connect_timeout=1))
    with pytest.raises(StoreUnavailable), UnreachablePolicy().around(Work("none")):
        Lock(store, "nobody").acquire(timeout=3_600)
    store.close()


def test_one_try_at_a_server_that_stands_still_ends_after_two_seconds(replica_pair: ReplicaPair) -> None:
    store = RedisStore(redis.Redis.from_url(replica_pair.url))
    lock = Lock(store, "door", ttl=60)
    lock.acquire(timeout=30).release()
    replica_pair.master.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        lock.acquire(timeout=0)
    assert time.monotonic() - began >= 2.0
    replica_pair.master.resume()
    store.close()
    store.client.close()

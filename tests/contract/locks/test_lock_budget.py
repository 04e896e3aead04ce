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
from segmented.plans.waiting import ATTEMPT_SECONDS, UNDO_SECONDS
from segmented.stores.redis import AsyncRedisStore

if TYPE_CHECKING:
    from tests.support.servers.deployments import ReplicaPair

WAIT = 0.4
GRACE = 0.5
"""For a busy machine."""


def assert_in_time(began: float) -> None:
    assert WAIT <= time.monotonic() - began < WAIT + ATTEMPT_SECONDS + UNDO_SECONDS + GRACE


@pytest.mark.parametrize("is_known", [True, False], ids=["connected-before", "never-connected"])
def test_e2_a_server_that_hangs_ends_a_wait_at_its_deadline(replica_pair: ReplicaPair, *, is_known: bool) -> None:
    store = RedisStore(redis.Redis.from_url(replica_pair.url))
    lock = Lock(store, "hung", ttl=1)
    if is_known:
        lock.acquire(timeout=1).release()
    replica_pair.master.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        lock.acquire(timeout=WAIT)
    assert_in_time(began)
    replica_pair.master.resume()
    lock.acquire(timeout=5).release()
    store.close()
    store.client.close()


@pytest.mark.parametrize("is_known", [True, False], ids=["connected-before", "never-connected"])
def test_e2_the_same_for_asyncio(replica_pair: ReplicaPair, *, is_known: bool) -> None:
    async def body() -> None:
        store = AsyncRedisStore(redis_asyncio.Redis.from_url(replica_pair.url))
        lock = AsyncLock(store, "hung", ttl=1)
        if is_known:
            await (await lock.acquire(timeout=1)).release()
        replica_pair.master.pause()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await lock.acquire(timeout=WAIT)
        assert_in_time(began)
        replica_pair.master.resume()
        await (await lock.acquire(timeout=5)).release()
        await store.close()
        await store.client.aclose()

    asyncio.run(body())


def test_e2_a_server_that_hangs_while_a_waiter_is_parked_ends_the_wait_at_its_deadline(
    replica_pair: ReplicaPair,
) -> None:
    with RedisStore.from_url(replica_pair.url) as store:
        held = Lock(store, "parked", ttl=60).acquire(timeout=0)
        began = time.monotonic()
        with pytest.raises(AcquireTimeout):
            Lock(store, "parked").acquire(timeout=0.05)
        replica_pair.master.pause()
        began = time.monotonic()
        with pytest.raises((AcquireTimeout, StoreUnavailable)):
            Lock(store, "parked").acquire(timeout=WAIT)
        assert_in_time(began)
        replica_pair.master.resume()
        held.release()


def test_a_server_that_is_not_there_is_told_at_once_in_a_policys_block(replica_pair: ReplicaPair) -> None:
    store = RedisStore(redis.Redis(port=replica_pair.master.ports["port"] + 1, socket_connect_timeout=1))
    began = time.monotonic()
    with pytest.raises(StoreUnavailable), UnreachablePolicy().around(Work("none")):
        Lock(store, "nobody").acquire(timeout=30)
    assert time.monotonic() - began < 5
    store.close()

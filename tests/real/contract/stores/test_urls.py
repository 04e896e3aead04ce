"""A store made of a URL: it connects, and closes what it has made."""

import asyncio

import pytest

from segmented import AsyncLock, AsyncRedisStore, Lock, RedisStore, StoreUnavailable
from segmented.servers import ValkeyServer
from tests.support.contract.parking import wait_until
from tests.support.servers.nodes import free_ports


def connections(valkey: ValkeyServer) -> int:
    with RedisStore(valkey.url) as store:
        return len(store.client.client_list())


def test_a_store_of_a_url_locks_and_closes_its_connections(private_valkey: ValkeyServer) -> None:
    before = connections(private_valkey)
    with RedisStore(private_valkey.url) as store, Lock(store, "door"):
        pass
    wait_until(lambda: connections(private_valkey) == before)


def test_a_server_that_does_not_answer_is_told_at_once_or_at_the_first_operation() -> None:
    url = f"redis://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(StoreUnavailable):
        RedisStore(url)

    async def ask() -> None:
        async with AsyncRedisStore(url) as store:
            await AsyncLock(store, "door").is_locked()

    with pytest.raises(StoreUnavailable):
        asyncio.run(ask())

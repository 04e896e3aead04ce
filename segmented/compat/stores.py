"""One store for each client, shared by all its locks; it is closed when the client is garbage-collected.

A store uses its own client on the same connection pool, because holding the user's client would keep that alive. A
cluster client has no such second client: its store and the client live until both are closed.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary, finalize, ref

import redis
from redis import asyncio as redis_asyncio

from segmented.process import Guard
from segmented.stores.redis import AsyncRedisStore, RedisStore
from segmented.stores.redis.given_clients import usable_client

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Client = redis.Redis | redis.RedisCluster
AsyncClient = redis_asyncio.Redis | redis_asyncio.RedisCluster
ClientT = TypeVar("ClientT", Client, AsyncClient)

_stores: WeakKeyDictionary[Client, RedisStore] = WeakKeyDictionary()
_async_stores: WeakKeyDictionary[AsyncClient, tuple[ref[AbstractEventLoop], AsyncRedisStore]] = WeakKeyDictionary()
_closing: set[asyncio.Future[None]] = set()
_guard = Guard()


def store_of(client: Client) -> RedisStore:
    """Return the store that the locks of `client` use, for threads.

    If you close the client before the program ends, close the store with it: `store_of(client).close()`. This function
    sends nothing to the server. Raises InvalidInput for anything but a client.
    """
    check_client(client)
    with _guard.lock:
        found = _stores.get(client)
        if found is None or found.is_closed:
            beside = client
            if isinstance(client, redis.Redis):
                beside = redis.Redis(connection_pool=client.connection_pool)
            found = _stores[client] = RedisStore.unchecked(beside)
            if beside is not client:
                finalize(client, _close_soon, found).atexit = False
        return found


def async_store_of(client: AsyncClient) -> AsyncRedisStore:
    """Return the store that the locks of `client` use, for the running event loop.

    Close it together with the client: `await async_store_of(client).close()`.
    """
    async_check_client(client)
    loop = asyncio.get_running_loop()
    with _guard.lock:
        its_loop, found = _async_stores.get(client, (None, None))
        if found is None or found.is_closed or its_loop is None or its_loop() is not loop:
            beside = client
            if isinstance(client, redis_asyncio.Redis):
                beside = redis_asyncio.Redis(connection_pool=client.connection_pool)
            found = AsyncRedisStore(beside)
            _async_stores[client] = (ref(loop), found)
            if beside is not client:
                finalize(client, _close_in_loop, ref(loop), found).atexit = False
        return found


def check_client(client: Client) -> None:
    """Raise InvalidInput for anything but a client for threads."""
    if not isinstance(client, Client):
        usable_client(client, is_async=False)


def async_check_client(client: AsyncClient) -> None:
    """Raise InvalidInput for anything but an asyncio client."""
    if not isinstance(client, AsyncClient):
        usable_client(client, is_async=True)


def _close_soon(store: RedisStore) -> None:
    # Closing waits for the listener, and a finalizer may run anywhere.
    threading.Thread(target=store.close, name="segmented-close", daemon=True).start()


def _close_in_loop(its_loop: ref[AbstractEventLoop], store: AsyncRedisStore) -> None:
    def close() -> None:
        closing = asyncio.ensure_future(store.close())
        _closing.add(closing)  # a task without a reference may be collected before it ends
        closing.add_done_callback(_closing.discard)

    loop = its_loop()
    if loop is not None:
        with suppress(RuntimeError):  # it is closed, and the connections with it
            loop.call_soon_threadsafe(close)

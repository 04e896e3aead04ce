"""The store for asyncio: the same exchanges over redis-py's asyncio client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from segmented.clock import Clock, checked_clock
from segmented.stores.redis.addresses import parse_address
from segmented.stores.redis.clients import async_client, close_async_client
from segmented.stores.redis.edge import guarded
from segmented.stores.redis.eviction import Eviction
from segmented.stores.redis.executing import AsyncExecuting, async_check_masters
from segmented.stores.redis.given_clients import usable_client
from segmented.stores.redis.linking import PATIENCE, checked_seconds

if TYPE_CHECKING:
    from redis import asyncio as redis_asyncio

    from segmented.clock import Duration
    from segmented.protocol.wire import Dialect


class AsyncRedisStore(AsyncExecuting):
    """Operations on Redis or Valkey for one event loop, one round trip each; otherwise as `RedisStore`.

    Another loop may use the store once the first one has stopped, as with several `asyncio.run`; connections and waits
    begin again there. While two loops are running, the second gets InvalidInput.
    """

    ends_before_cancelled: Final = True
    """If a task is cancelled during an operation, the cancellation is raised when the operation has ended."""

    def __init__(
        self,
        client: redis_asyncio.Redis | redis_asyncio.RedisCluster | str,
        *,
        clock: Clock | None = None,
        dialect: Dialect | None = None,
        patience: Duration = PATIENCE,
        allow_eviction: bool = False,
    ) -> None:
        """Use `client`, which the caller closes; or connect to a URL, as `from_url` does.

        `dialect`, `patience` and `allow_eviction` are as in `RedisStore`. The server is checked before the first
        operation, which raises InvalidInput if the server is not usable, and StoreUnavailable if it does not answer.
        `await AsyncRedisStore.from_url(url)` checks it at once.
        """
        where, allowed = "", allow_eviction
        if isinstance(client, str):
            address = parse_address(client)
            where, allowed = address.shown, allowed or address.allows_eviction
            with guarded(client):
                client = async_client(address)
        eviction = Eviction(is_allowed=allowed)
        self._start(usable_client(client, is_async=True), clock, dialect, patience, owned_at=where, eviction=eviction)

    @classmethod
    async def from_url(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        dialect: Dialect | None = None,
        patience: Duration = PATIENCE,
        timeout: Duration | None = None,
    ) -> AsyncRedisStore:
        """Connect and check the server, or every master of a cluster, as `RedisStore.from_url` does."""
        time_source = checked_clock(clock)
        seconds = None if timeout is None else checked_seconds(timeout, "timeout")
        address = parse_address(url)
        eviction = Eviction(is_allowed=address.allows_eviction)
        with guarded(url):
            client = async_client(address)
            try:
                async with asyncio.timeout(seconds):
                    await async_check_masters(client, address.shown, eviction)
            except TimeoutError as error:
                await close_async_client(client)
                message = f"it did not answer within {seconds:g} s"
                raise TimeoutError(message) from error
            except BaseException:
                await close_async_client(client)
                raise
        store = cls.__new__(cls)
        at = address.shown
        store._start(  # noqa: SLF001  # the second constructor
            client, time_source, dialect, patience, owned_at=at, is_checked=True, eviction=eviction
        )
        return store

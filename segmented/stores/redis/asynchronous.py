"""The store for asyncio: the same codecs over redis-py's asyncio client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from redis import asyncio as redis_asyncio
from redis.asyncio.retry import Retry
from redis.exceptions import NoScriptError

from segmented.clock import Clock, SystemClock
from segmented.stores.redis.async_listener import AsyncRedisWakeups
from segmented.stores.redis.codecs import CODECS
from segmented.stores.redis.edge import check_server, client_options, guarded, shown, translated

if TYPE_CHECKING:
    from segmented.operations import Operation
    from segmented.stores.redis.wire import Call, Reply

AnswerT = TypeVar("AnswerT")


class AsyncRedisStore:
    """Operations on a Redis or Valkey server, one round trip each, for one event loop."""

    def __init__(self, client: redis_asyncio.Redis, *, clock: Clock | None = None) -> None:
        """Use `client`; it stays the caller's to close."""
        self.client = client
        self._run: Any = client.execute_command  # untyped in redis-py
        self.clock: Clock = clock or SystemClock()
        self.wakeups = AsyncRedisWakeups(client, self.clock)
        self._owns_client = False
        options = client.connection_pool.connection_kwargs
        self._where = str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")

    @classmethod
    async def from_url(cls, url: str, *, clock: Clock | None = None) -> AsyncRedisStore:
        """Connect and check the server. Raises InvalidInput when it cannot be used."""
        with guarded(url):
            pool = redis_asyncio.BlockingConnectionPool.from_url(url, **client_options(Retry))
            client = redis_asyncio.Redis.from_pool(pool)
            try:
                check_server(url, cast("Any", await client.info("server")), cast("Any", await client.info("memory")))
            except BaseException:
                await client.aclose()
                raise
        store = cls(client, clock=clock)
        store._owns_client = True
        store._where = shown(url)
        return store

    async def execute(self, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation in one step."""
        codec = CODECS[type(operation)]
        with translated(self._where):
            reply = await self._send(codec.encode(operation))
        return cast("AnswerT", codec.decode(operation, reply))

    async def _send(self, call: Call) -> Reply:
        if call.script is None:
            return await self._run(*call.arguments)
        keys_and_arguments = (len(call.keys), *call.keys, *call.arguments)
        try:
            return await self._run("EVALSHA", call.script.sha, *keys_and_arguments)
        except NoScriptError:  # a new server, a restart or SCRIPT FLUSH: send the text, which also caches it
            return await self._run("EVAL", call.script.text, *keys_and_arguments)

    async def close(self) -> None:
        """Stop listening and give up the connections this store made."""
        await self.wakeups.close()
        if self._owns_client:
            await self.client.aclose()

    async def __aenter__(self) -> Self:
        """Return the store; closed at the end of the `with` statement."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    def __repr__(self) -> str:
        """Name the server, without secrets."""
        return f"AsyncRedisStore({self._where})"

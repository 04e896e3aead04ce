"""The store for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import redis
from redis.exceptions import NoScriptError
from redis.retry import Retry

from segmented.clock import Clock, SystemClock
from segmented.stores.redis.codecs import CODECS
from segmented.stores.redis.edge import check_server, client_options, guarded, shown, translated
from segmented.stores.redis.listener import RedisWakeups

if TYPE_CHECKING:
    from segmented.operations import Operation
    from segmented.stores.redis.wire import Call, Reply

AnswerT = TypeVar("AnswerT")


class RedisStore:
    """Operations on a Redis or Valkey server, one round trip each. May be shared by threads.

    Give it a client of your own (RESP2 or RESP3, `decode_responses` or not), or let `from_url` make one with bounded
    time-outs and retries.
    """

    def __init__(self, client: redis.Redis, *, clock: Clock | None = None) -> None:
        """Use `client`; it stays the caller's to close."""
        self.client = client
        self._run: Any = client.execute_command  # untyped in redis-py
        self.clock: Clock = clock or SystemClock()
        self.wakeups = RedisWakeups(client, self.clock)
        self._owns_client = False
        self._where = _address(client)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> RedisStore:
        """Connect and check the server. Raises InvalidInput when it cannot be used."""
        with guarded(url):
            client = redis.Redis.from_pool(redis.BlockingConnectionPool.from_url(url, **client_options(Retry)))
            try:
                check_server(url, cast("Any", client.info("server")), cast("Any", client.info("memory")))
            except BaseException:
                client.close()
                raise
        store = cls(client, clock=clock)
        store._owns_client = True
        store._where = shown(url)
        return store

    def execute(self, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation in one step."""
        codec = CODECS[type(operation)]
        with translated(self._where):
            reply = self._send(codec.encode(operation))
        return cast("AnswerT", codec.decode(operation, reply))

    def _send(self, call: Call) -> Reply:
        if call.script is None:
            return self._run(*call.arguments)
        keys_and_arguments = (len(call.keys), *call.keys, *call.arguments)
        try:
            return self._run("EVALSHA", call.script.sha, *keys_and_arguments)
        except NoScriptError:  # a new server, a restart or SCRIPT FLUSH: send the text, which also caches it
            return self._run("EVAL", call.script.text, *keys_and_arguments)

    def close(self) -> None:
        """Stop listening and give up the connections this store made."""
        self.wakeups.close()
        if self._owns_client:
            self.client.close()

    def __enter__(self) -> Self:
        """Return the store; closed at the end of the `with` statement."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """Name the server, without secrets."""
        return f"RedisStore({self._where})"


def _address(client: redis.Redis) -> str:
    options = client.connection_pool.connection_kwargs
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")

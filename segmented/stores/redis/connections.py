"""The connections of a store: separate from the client's, with the client's settings, within the client's limit.

A client's pool belongs to the user. redis-py's plain pool raises MaxConnectionsError as soon as it is asked for one
connection more than it allows. If a store took its connections from that pool, the user's own `get()` could fail, and
a pool of one connection could not listen and work at the same time. So a store does not use the pool. It reads the
pool's public settings (`connection_class`, `connection_kwargs`, `max_connections`) and opens its own connections:

- In all it opens at most the client's `max_connections` (and never more than CONNECTIONS_MAX + 1). One of them listens
  for wake-ups, the others run operations. With `max_connections=1` there is one of each.
- Further callers wait for a free connection until their deadline, and then get StoreBusy, because the server is not
  the cause.
- A connection that was idle for IDLE_SECONDS is closed while others work. `close()` closes all of them.

So the server sees at most twice the client's `max_connections`: the connections of the user's own calls, and those of
the store. The store's connections always return bytes, read as UTF-8 whatever the client's `encoding` is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.client import PubSub as AsyncPubSub
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.retry import Retry

from segmented.stores.redis.edge import CONNECTIONS_MAX, TRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

IDLE_SECONDS: Final = 30.0
TURN_SECONDS: Final = 20.0
"""How long a caller without a deadline waits for a free connection; as in redis-py's own blocking pool."""


@dataclass(frozen=True, slots=True)
class Connections:
    """The settings and the number of the connections to one server."""

    connection_class: Callable[..., Any]
    options: Mapping[str, Any] = field(repr=False)
    connections_max: int
    """The client's limit."""

    @property
    def wires_max(self) -> int:
        """Return the maximum number of connections that run operations; one more listens."""
        return max(1, min(CONNECTIONS_MAX, self.connections_max - 1))

    def make(self) -> Any:  # noqa: ANN401  # of the client's own class
        """Create a connection, which is not connected yet."""
        return self.connection_class(**self.options)

    def subscription(self, *, retries: int = TRIES - 1) -> PubSub:
        """Create a subscription for threads, on its own connection, which reconnects up to `retries` times."""
        options = {**self.options, "retry": Retry(NoBackoff(), retries)}
        return PubSub(redis.ConnectionPool(connection_class=self.connection_class, max_connections=1, **options))

    def async_subscription(self, *, retries: int = TRIES - 1) -> AsyncPubSub:
        """Create a subscription for asyncio, on its own connection, which reconnects up to `retries` times."""
        options = {**self.options, "retry": AsyncRetry(NoBackoff(), retries)}
        kind: Any = self.connection_class
        return AsyncPubSub(redis_asyncio.ConnectionPool(connection_class=kind, max_connections=1, **options))


def connections_of(pool: Any) -> Connections:  # noqa: ANN401  # a pool of redis-py, sync or async
    """Read the settings of a client's pool."""
    return connections_like(pool.connection_class, pool.connection_kwargs, pool.max_connections)


def connections_like(
    connection_class: Callable[..., Any], options: Mapping[str, Any], connections_max: int
) -> Connections:
    """Return these settings for our own connections, which return bytes."""
    return Connections(connection_class, {**options, "decode_responses": False}, connections_max)

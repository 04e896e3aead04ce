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

Before a store's first operation a server passes the checks of `from_url`, for any client. They run on the store's own
connection, in the round trip that also learns the server's dialect, so they cost no wait of their own, hold to the
deadline of the operation, and need nothing of the user's client.
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
from redis.exceptions import NoPermissionError, ResponseError
from redis.retry import Retry

from segmented.errors import InvalidInput
from segmented.protocol.wire import (
    IDENTITY,
    QUESTION,
    Command,
    Dialect,
    Exchange,
    Peer,
    Reply,
    Send,
    dialect_of,
    identity_of,
    is_of_cluster,
    text,
)
from segmented.stores.redis.addresses import Deployment
from segmented.stores.redis.edge import CONNECTIONS_MAX, TRIES, check_server
from segmented.stores.redis.rights import check_rights, probing_scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from segmented.stores.redis.eviction import Eviction

IDLE_SECONDS: Final = 30.0
TURN_SECONDS: Final = 20.0
"""How long a caller without a deadline waits for a free connection; as in redis-py's own blocking pool."""
INFO: Final[Command] = ("INFO",)


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


class ServerCheck:
    """The checks of one server."""

    def __init__(self, where: str, eviction: Eviction, deployment: Deployment = Deployment.SINGLE) -> None:
        """Create the checks; `where` names the server in errors, and the store's `eviction` notes its policy."""
        self._where = where
        self._eviction = eviction
        self._deployment = deployment
        with probing_scripts(where) as commands:
            self.commands: Sequence[Command] = (INFO, *commands)

    def read(self, replies: Sequence[Reply]) -> None:
        """Read the replies to `commands`.

        Raises InvalidInput for a server that could lose locks or stock, and for an account that lacks a right.
        """
        said, *probed = replies
        if isinstance(said, NoPermissionError):
            message = f"the account of {self._where} may not run INFO, which is needed to check the server: {said}"
            raise InvalidInput(message)
        if isinstance(said, ResponseError):
            raise said
        found = dict(line.partition(":")[::2] for line in text(said).splitlines() if not line.startswith("#"))
        if self._deployment is not Deployment.SINGLE:  # there the role may change, and the links follow it
            found.pop("role", None)
        is_cluster = self._deployment is Deployment.CLUSTER
        check_server(self._where, found, is_cluster=is_cluster, eviction=self._eviction)
        with probing_scripts(self._where):
            for reply in probed:
                if isinstance(reply, ResponseError):
                    raise reply
        check_rights(self._where, probed[0])


def greeting(check: ServerCheck | None, wanted: Dialect | None) -> Sequence[Command]:
    """Return the commands sent on a new connection before its first operation, in one round trip."""
    return (IDENTITY, *(() if wanted else (QUESTION,)), *(check.commands if check else ()))


def greeted(replies: Sequence[Reply], check: ServerCheck | None, wanted: Dialect | None) -> Peer:
    """Read the replies to `greeting`. Raises InvalidInput for an unusable server."""
    if check is not None:
        check.read(replies[-len(check.commands) :])
    return Peer(wanted or dialect_of(replies[1]), identity_of(replies[0]), is_of_cluster(replies[0]))


def pinging(*_: object) -> Exchange[None]:
    """Ask only whether the server answers."""
    yield Send((("PING",),))


def publishing(command: str, channel: str, word: str, *_: object) -> Exchange[None]:
    """Send one message; raise the server's refusal."""
    (reply,) = yield Send(((command, channel, word),))
    if isinstance(reply, ResponseError):
        raise reply

"""Which link a client needs, how the store behind it is called, and the links to a master by way of Sentinels.

Every new connection asks the Sentinels who is the master (redis-py does), and a master that was demoted in the meantime
says READONLY, after which its connections are given up. So asking again is all it takes to follow a failover. While no
master answers, the links ask again, for a while.
"""

from __future__ import annotations

import asyncio
import time
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncSentinelConnectionPool
from redis.exceptions import RedisError
from redis.sentinel import SentinelConnectionPool

from segmented.clock import Clock, Duration, in_seconds
from segmented.errors import InvalidInput
from segmented.stores.redis.addresses import Deployment, Host
from segmented.stores.redis.clients import LISTENS_TO_SHARDS, close_async_watchers, close_watchers
from segmented.stores.redis.cluster_link import AsyncClusterLink, ClusterLink
from segmented.stores.redis.cluster_map import PAUSE_MAX, PAUSE_MIN, Attempts, passes
from segmented.stores.redis.connections import Connections, ServerCheck, connections_of
from segmented.stores.redis.link import AsyncLink, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redis.asyncio.client import PubSub as AsyncPubSub
    from redis.client import PubSub

    from segmented.protocol.wire import Dialect, MakeExchange
    from segmented.stores.redis.edge import Eviction

PATIENCE: Final = 5.0
"""Seconds to retry an operation while a master is being replaced; limited by the operation's deadline."""
AnswerT = TypeVar("AnswerT")


def async_linked(
    client: redis_asyncio.Redis | redis_asyncio.RedisCluster,
    clock: Clock,
    *,
    dialect: Dialect | None,
    patience: Duration,
    owned_at: str = "",
    eviction: Eviction,
) -> tuple[AsyncLink | AsyncClusterLink, Callable[[Host | None], AsyncPubSub], str]:
    """Return the link for a client's deployment, how to subscribe, and the servers' name for errors.

    The servers are checked at the first contact.
    With `owned_at`, the address of a client of the store's own, a closed link leaves no connection of the client to a
    Sentinel either. Raises InvalidInput for a patience that is not a number of seconds.
    """
    patience = checked_seconds(patience, "patience")
    if isinstance(client, redis_asyncio.RedisCluster):
        if not LISTENS_TO_SHARDS:  # asyncio only
            raise InvalidInput("with asyncio, a store on a cluster needs redis-py 8 or newer, to hear of releases")
        cluster = AsyncClusterLink(client, clock, dialect=dialect, patience=patience, where=owned_at)
        cluster.seen.eviction = eviction
        return cluster, cluster.subscription, owned_at or _listed(cluster.map.hosts())
    pool = client.connection_pool
    connections, where = connections_of(pool), owned_at or where_of(pool)
    if isinstance(pool, AsyncSentinelConnectionPool):
        link: AsyncLink = AsyncSentinelLink(
            connections,
            clock,
            dialect=dialect,
            patience=patience,
            watchers=pool.sentinel_manager,
            owns_watchers=bool(owned_at),
            check=ServerCheck(where, eviction, Deployment.SENTINEL),
        )
    else:
        link = AsyncLink(connections, clock, dialect=dialect, check=ServerCheck(where, eviction))
    link.seen.eviction = eviction
    return link, lambda _: connections.async_subscription(), where


def where_of(pool: Any) -> str:  # noqa: ANN401  # a pool, sync or async
    """Return the name of a pool's server, without secrets."""
    if isinstance(pool, SentinelConnectionPool | AsyncSentinelConnectionPool):
        return f"the master of {pool.service_name!r}"
    options = pool.connection_kwargs
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def checked_seconds(given: Duration, name: str) -> float:
    """Return a number of seconds. Raises InvalidInput for anything else."""
    seconds = in_seconds(given)
    if type(seconds) not in {int, float} or not (isfinite(seconds) and seconds >= 0):
        raise InvalidInput(f"{name} is a number of seconds, 0 or more, not {given!r}")
    return seconds


def _listed(hosts: Sequence[tuple[str, int]]) -> str:
    return "the cluster of " + ", ".join(f"{name}:{port}" for name, port in hosts)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each further try."""
    pause = PAUSE_MIN
    while True:
        yield pause
        pause = min(2 * pause, PAUSE_MAX)


class AsyncSentinelLink(AsyncLink):
    """A link that survives a failover, for asyncio."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        *,
        dialect: Dialect | None,
        patience: float,
        watchers: Any,  # noqa: ANN401  # a Sentinel of redis-py
        owns_watchers: bool,
        check: ServerCheck | None = None,
    ) -> None:
        """Ask again for up to `patience` seconds. Once closed, disconnect its own `watchers` too after each use."""
        self._watchers = watchers
        self._owns_watchers = owns_watchers
        super().__init__(connections, clock, dialect=dialect, check=check)
        self._patience = patience

    def _start_anew(self) -> None:  # asyncio only
        super()._start_anew()
        if self._loop is not None:  # and has ended, with the connections to the Sentinels
            for one in self._watchers.sentinels:
                one.connection_pool.reset()

    async def disconnect(self) -> None:
        """Disconnect all unused wires, which connect again on their next use, by way of the Sentinels."""
        await super().disconnect()
        if self.is_closed and self._owns_watchers:
            await close_async_watchers(self._watchers)

    async def run(
        self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf, is_release: bool = False
    ) -> AnswerT:
        """Run an exchange on the current master."""
        attempts = Attempts(make_exchange)
        give_up = min(deadline, self._clock.now() + self._patience)
        for pause in pauses():
            try:
                return await super().run(attempts.direct, deadline=deadline, is_release=is_release)
            except (RedisError, OSError) as error:
                attempts.failed(error)
                if not passes(error) or self._clock.now() + pause >= give_up:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError  # pauses do not end


# --- For threads: written by `make sync` from the classes above. ---


def linked(
    client: redis.Redis | redis.RedisCluster,
    clock: Clock,
    *,
    dialect: Dialect | None,
    patience: Duration,
    owned_at: str = "",
    eviction: Eviction,
) -> tuple[Link | ClusterLink, Callable[[Host | None], PubSub], str]:
    """Return the link for a client's deployment, how to subscribe, and the servers' name for errors.

    The servers are checked at the first contact.
    With `owned_at`, the address of a client of the store's own, a closed link leaves no connection of the client to a
    Sentinel either. Raises InvalidInput for a patience that is not a number of seconds.
    """
    patience = checked_seconds(patience, "patience")
    if isinstance(client, redis.RedisCluster):
        cluster = ClusterLink(client, clock, dialect=dialect, patience=patience, where=owned_at)
        cluster.seen.eviction = eviction
        return cluster, cluster.subscription, owned_at or _listed(cluster.map.hosts())
    pool = client.connection_pool
    connections, where = connections_of(pool), owned_at or where_of(pool)
    if isinstance(pool, SentinelConnectionPool):
        link: Link = SentinelLink(
            connections,
            clock,
            dialect=dialect,
            patience=patience,
            watchers=pool.sentinel_manager,
            owns_watchers=bool(owned_at),
            check=ServerCheck(where, eviction, Deployment.SENTINEL),
        )
    else:
        link = Link(connections, clock, dialect=dialect, check=ServerCheck(where, eviction))
    link.seen.eviction = eviction
    return link, lambda _: connections.subscription(), where


class SentinelLink(Link):
    """A link that survives a failover, for threads."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        *,
        dialect: Dialect | None,
        patience: float,
        watchers: Any,  # noqa: ANN401  # a Sentinel of redis-py
        owns_watchers: bool,
        check: ServerCheck | None = None,
    ) -> None:
        """Ask again for up to `patience` seconds. Once closed, disconnect its own `watchers` too after each use."""
        self._watchers = watchers
        self._owns_watchers = owns_watchers
        super().__init__(connections, clock, dialect=dialect, check=check)
        self._patience = patience

    def disconnect(self) -> None:
        """Disconnect all unused wires, which connect again on their next use, by way of the Sentinels."""
        super().disconnect()
        if self.is_closed and self._owns_watchers:
            close_watchers(self._watchers)

    def run(self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run an exchange on the current master."""
        attempts = Attempts(make_exchange)
        give_up = min(deadline, self._clock.now() + self._patience)
        for pause in pauses():
            try:
                return super().run(attempts.direct, deadline=deadline)
            except (RedisError, OSError) as error:
                attempts.failed(error)
                if not passes(error) or self._clock.now() + pause >= give_up:
                    raise
            time.sleep(pause)
        raise AssertionError  # pauses do not end

"""redis-py clients for an address, with short timeouts and hardly any retries: the links retry.

If one of several servers may be unreachable, its timeout is short, so that the next one is asked soon.

A store also accepts the user's own clients, redis-py's and valkey-py's (`usable_client`). For others, one sentence says
what to use instead. A valkey-py client has redis-py's settings under the same names. So its settings are read, and
redis-py creates the connections, with redis-py's errors. A client without an equal in redis-py (valkey-py's cluster or
Sentinel) is refused.

The differences between the supported versions of redis-py; everything else is public in all of them:

| | redis-py 5.0 to 6 | 7 | 8 |
| --- | --- | --- | --- |
| limit for one reply, with threads | `can_read(timeout)` before it | as before | `read_response(timeout=)` |
| close the clients of a Sentinel | one by one | as before | `Sentinel.close()`; one by one here too |
| a shard's channels in asyncio | none, so no asyncio on a cluster | none | `PubSub.ssubscribe` |
| another limit for what is sent later | none: that of the connect | `update_current_socket_timeout` | as before |

So before redis-py 8 the rest of a reply whose first bytes came in time, and a handshake, may take up to the socket's
own time-out longer than a caller's deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio import cluster as async_cluster, sentinel as async_sentinel
from redis.asyncio.client import Pipeline as AsyncPipeline, PubSub as AsyncPubSub
from redis.asyncio.cluster import ClusterPipeline as AsyncClusterPipeline
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncSentinelConnectionPool
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.cluster import ClusterNode, ClusterPipeline
from redis.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from segmented.errors import InvalidInput
from segmented.stores.redis.addresses import Address, Deployment, is_encoding_usable
from segmented.stores.redis.edge import CONNECTIONS_MAX, OTHER_CONNECTIONS, client_options

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply


FAILOVER_SOCKET_TIMEOUT: Final = 2.0
SENTINEL_TIMEOUT: Final = 1.0


def client_of(address: Address) -> redis.Redis | redis.RedisCluster:
    """Create a client for threads. A cluster client reads the cluster's slots immediately."""
    match address.deployment:
        case Deployment.SINGLE:
            pool = redis.ConnectionPool.from_url(address.node_url, **client_options(Retry))
            return redis.Redis.from_pool(pool)
        case Deployment.SENTINEL:
            options = _failover_options(address, Retry)
            watchers = Sentinel(address.hosts, sentinel_kwargs=_sentinel_options(address, options, Retry))
            found: redis.Redis = watchers.master_for(address.service, **options)
            return found
        case Deployment.CLUSTER:
            options = _cluster_options(address, Retry)
            return redis.RedisCluster(startup_nodes=[ClusterNode(*host) for host in address.hosts], **options)


def async_client_of(address: Address) -> redis_asyncio.Redis | redis_asyncio.RedisCluster:
    """Create a client for an event loop, which does not connect yet."""
    match address.deployment:
        case Deployment.SINGLE:
            pool = redis_asyncio.ConnectionPool.from_url(address.node_url, **client_options(AsyncRetry))
            return redis_asyncio.Redis.from_pool(pool)
        case Deployment.SENTINEL:
            options = _failover_options(address, AsyncRetry)
            guards = _sentinel_options(address, options, AsyncRetry)
            watchers = async_sentinel.Sentinel(address.hosts, sentinel_kwargs=guards)
            found: redis_asyncio.Redis = watchers.master_for(address.service, **options)
            return found
        case Deployment.CLUSTER:
            options = _cluster_options(address, AsyncRetry)
            nodes = [async_cluster.ClusterNode(*host) for host in address.hosts]
            return redis_asyncio.RedisCluster(startup_nodes=nodes, **options)


def close_client(client: redis.Redis | redis.RedisCluster) -> None:
    """Close a client from `client_of`, and its clients for the Sentinels."""
    client.close()
    if not isinstance(client, redis.RedisCluster) and (watchers := _watchers(client)):
        close_watchers(watchers)


async def close_async_client(client: redis_asyncio.Redis | redis_asyncio.RedisCluster) -> None:
    """Close a client from `async_client_of`, and its clients for the Sentinels."""
    with suppress(RuntimeError):  # connections of an event loop that is closed have ended with it
        await client.aclose()
        if not isinstance(client, redis_asyncio.RedisCluster) and (watchers := _watchers(client)):
            await close_async_watchers(watchers)


def _watchers(client: redis.Redis | redis_asyncio.Redis) -> Any:  # noqa: ANN401  # a Sentinel, sync or async
    return getattr(client.connection_pool, "sentinel_manager", None)


def _failover_options(address: Address, retry_class: type[Retry | AsyncRetry]) -> dict[str, Any]:
    """Return the settings for connections to the data servers: our defaults, overridden by the URL's options."""
    given = parse_url(address.node_url)
    for name in ("host", "port"):
        given.pop(name, None)
    if given.pop("connection_class", None) is not None:
        given["ssl"] = True
    return {**client_options(retry_class), "socket_timeout": FAILOVER_SOCKET_TIMEOUT, **given}


def _sentinel_options(
    address: Address, options: Mapping[str, Any], retry_class: type[Retry | AsyncRetry]
) -> dict[str, Any]:
    shared = {name: value for name, value in options.items() if name == "ssl" or name.startswith("ssl_")}
    return {
        **shared,
        "username": address.sentinel_username,
        "password": address.sentinel_password,
        "socket_connect_timeout": SENTINEL_TIMEOUT,
        "socket_timeout": SENTINEL_TIMEOUT,
        "retry": retry_class(NoBackoff(), 0),
    }


def _cluster_options(address: Address, retry_class: type[Retry | AsyncRetry]) -> dict[str, Any]:
    options = _failover_options(address, retry_class)
    for name in ("db", "retry_on_error"):
        options.pop(name, None)
    return {"max_connections": CONNECTIONS_MAX + OTHER_CONNECTIONS, **options}


PIPELINES: Final = (Pipeline, AsyncPipeline, ClusterPipeline, AsyncClusterPipeline)
SYNC: Final = (redis.Redis, redis.RedisCluster)
ASYNC: Final = (redis_asyncio.Redis, redis_asyncio.RedisCluster)
SHARED_WITH_VALKEY: Final = frozenset(
    {
        "host",
        "port",
        "path",
        "db",
        "username",
        "password",
        "client_name",
        "credential_provider",
        "encoding",
        "encoding_errors",
        "health_check_interval",
        "protocol",
        "socket_connect_timeout",
        "socket_keepalive",
        "socket_keepalive_options",
        "socket_timeout",
    }
)
"""These, and all names that begin with `ssl_`."""


def usable_client(given: object, *, is_async: bool) -> Any:  # noqa: ANN401  # a client of redis-py, sync or async
    """Return a redis-py client for the given client. Raises InvalidInput for an unusable one."""
    store = "AsyncRedisStore" if is_async else "RedisStore"
    makers = _packages(given)
    if isinstance(given, bytes):
        raise InvalidInput(f"{store} takes a client or a URL, which is a str, not bytes: decode it")
    if "fakeredis" in makers:
        raise InvalidInput(
            f"{store} does not work with fakeredis, which is not a Redis server: "
            "in unit tests use MemoryStore, or the server that `segmented server` starts"
        )
    if "valkey" in makers:
        given = _of_valkey(given, store, is_async=is_async)
    if isinstance(given, PIPELINES):
        raise InvalidInput(f"{store} takes a client, not a pipeline: pass the client that created the pipeline")
    if isinstance(given, SYNC if is_async else ASYNC):
        raise _other_colour(store, is_async=is_async)
    if not isinstance(given, ASYNC if is_async else SYNC):
        said = "None" if given is None else f"{type(given).__module__}.{type(given).__qualname__}"
        raise InvalidInput(f"{store} needs {_wanted(is_async=is_async)}, and got {said}; or call {store}.from_url(...)")
    _check_settings(given, store)
    return given


def _check_settings(client: Any, store: str) -> None:  # noqa: ANN401  # a client of redis-py, sync or async
    if isinstance(client, redis.RedisCluster | redis_asyncio.RedisCluster):
        _check_encoding(client.get_encoder().encoding, store)
        return
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool | AsyncSentinelConnectionPool) and not pool.is_master:
        message = f"{store} needs a master, and got a client of replicas: use Sentinel.master_for(...), not slave_for"
        raise InvalidInput(message)
    _check_encoding(pool.connection_kwargs.get("encoding", "utf-8"), store)


def _check_encoding(encoding: str, store: str) -> None:
    if not is_encoding_usable(encoding):
        message = f"{store} cannot use a client with encoding={encoding!r}, which no server can read: use utf-8"
        raise InvalidInput(message)


def _of_valkey(given: Any, store: str, *, is_async: bool) -> Any:  # noqa: ANN401  # a client of a package that may be missing
    """Return a redis-py client with the settings of a valkey-py client."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(given).__mro__}
    if "Pipeline" in type(given).__name__:
        raise InvalidInput(f"{store} takes a client, not a pipeline: pass the client that created the pipeline")
    pool = getattr(given, "connection_pool", None)
    if not kinds & {"valkey.client.Valkey", "valkey.asyncio.client.Valkey"} or hasattr(pool, "sentinel_manager"):
        raise InvalidInput(
            f"{store} accepts only single-server clients of valkey-py: for others call {store}.from_url(...) with "
            "redis+sentinel://HOST:PORT/SERVICE or redis+cluster://HOST:PORT"
        )
    if is_async is not ("valkey.asyncio.client.Valkey" in kinds):
        raise _other_colour(store, is_async=is_async)
    options = {
        name: value
        for name, value in pool.connection_kwargs.items()  # type: ignore[union-attr]  # one that has a pool
        if (name in SHARED_WITH_VALKEY or name.startswith("ssl_")) and value is not None
    }
    module: Any = redis_asyncio if is_async else redis
    made = {kind.__name__ for kind in pool.connection_class.__mro__}  # type: ignore[union-attr]  # one that has a pool
    kind = next(name for name in ("SSLConnection", "UnixDomainSocketConnection", "Connection") if name in made)
    return module.Redis.from_pool(
        module.ConnectionPool(
            connection_class=getattr(module, kind),
            max_connections=pool.max_connections,  # type: ignore[union-attr]  # one that has a pool
            **options,
        )
    )


def _packages(given: object) -> set[str]:
    """Return the top-level packages of a client and of its pool's connections."""
    connection_class = getattr(getattr(given, "connection_pool", None), "connection_class", None)
    kinds = [*type(given).__mro__, *getattr(connection_class, "__mro__", ())]
    return {kind.__module__.partition(".")[0] for kind in kinds}


def _other_colour(store: str, *, is_async: bool) -> InvalidInput:
    found, other = ("threads", "RedisStore") if is_async else ("asyncio", "AsyncRedisStore")
    return InvalidInput(f"{store} needs {_wanted(is_async=is_async)}, not a client for {found}: use {other} for it")


def _wanted(*, is_async: bool) -> str:
    module = "redis.asyncio" if is_async else "redis"
    return f"a client of redis-py ({module}.Redis or {module}.RedisCluster)"


# --- The differences between the versions of redis-py. ---

READS_WITH_A_LIMIT: Final = "timeout" in signature(Connection.read_response).parameters
SENDS_WITH_A_LIMIT: Final = hasattr(AbstractConnection, "update_current_socket_timeout")
CAN_BE_HASTY: Final = READS_WITH_A_LIMIT and SENDS_WITH_A_LIMIT
"""Whether a connection that was made within a short deadline can be given its own time-outs afterwards."""
LISTENS_TO_SHARDS: Final = hasattr(AsyncPubSub, "ssubscribe")
NO_REPLY: Final = "no reply in time"


def read_within(connection: Any, seconds: float) -> Reply:  # noqa: ANN401  # of the client's own class
    """Read a reply within a time. Raises the driver's TimeoutError, and the server's refusal."""
    if READS_WITH_A_LIMIT:
        return connection.read_response(timeout=seconds)
    if not connection.can_read(timeout=seconds):
        raise RedisTimeoutError(NO_REPLY)
    return connection.read_response()


def close_watchers(sentinel: Any) -> None:  # noqa: ANN401  # a Sentinel of redis-py
    """Disconnect the clients of a Sentinel."""
    for watcher in sentinel.sentinels:
        watcher.close()


async def close_async_watchers(sentinel: Any) -> None:  # noqa: ANN401  # a Sentinel of redis-py
    """Disconnect the clients of a Sentinel."""
    for watcher in sentinel.sentinels:
        await watcher.aclose()

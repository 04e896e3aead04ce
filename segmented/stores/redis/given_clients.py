"""The clients that a store accepts: redis-py's and valkey-py's. For others, one sentence says what to use instead.

A valkey-py client has redis-py's settings under the same names. So its settings are read, and redis-py creates the
connections, with redis-py's errors. A client without an equal in redis-py (valkey-py's cluster or Sentinel) is refused.
"""

from __future__ import annotations

from typing import Any, Final

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.client import Pipeline as AsyncPipeline
from redis.asyncio.cluster import ClusterPipeline as AsyncClusterPipeline
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncSentinelConnectionPool
from redis.client import Pipeline
from redis.cluster import ClusterPipeline
from redis.sentinel import SentinelConnectionPool

from segmented.errors import InvalidInput
from segmented.stores.redis.addresses import is_encoding_usable

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

"""redis-py clients for an address, with short timeouts and hardly any retries: the links retry.

If one of several servers may be unreachable, its timeout is short, so that the next one is asked soon.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio import cluster as async_cluster, sentinel as async_sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from segmented.stores.redis.addresses import Address, Deployment
from segmented.stores.redis.driver import close_async_watchers, close_watchers
from segmented.stores.redis.edge import CONNECTIONS_MAX, OTHER_CONNECTIONS, client_options

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

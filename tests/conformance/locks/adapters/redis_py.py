"""The `Lock` of redis-py, for threads and for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis import asyncio as redis_asyncio
from redis.exceptions import LockError, LockNotOwnedError

from tests.conformance.locks.contender import AsyncContender, Contender, RedisClientContender, client_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio.lock import Lock as AsyncLock
    from redis.lock import Lock

    from tests.conformance.locks.contender import Client, Handle


class RedisPy(Contender):
    """Created by `client.lock(...)`, as in its documentation."""

    title = "redis-py"
    packages = ("redis",)
    offers = frozenset({"wire", "ttl", "alone", "with", "endless", "renewal"})
    lost = (LockNotOwnedError,)
    refused = (LockError,)

    def key(self, name: str) -> str:
        """Its name is its key."""
        return name

    def make(self, client: Client, name: str, ttl: float | None) -> Handle:
        """By default a lease has no end."""
        return client.lock(name, timeout=ttl)

    def make_endless(self, client: Client, name: str) -> Handle:
        """Its default."""
        return client.lock(name)


class RedisPyLock(RedisPy, RedisClientContender):
    """For threads."""

    def acquire(self, handle: Lock, wait: float) -> Lock | None:
        """Wait."""
        return handle if handle.acquire(blocking_timeout=wait) else None

    def renew(self, hold: Lock, ttl: float) -> None:
        """Set the remaining time, not add to it."""
        hold.extend(ttl, replace_ttl=True)


class RedisPyAsyncLock(RedisPy, AsyncContender):
    """For asyncio."""

    offers = RedisPy.offers | {"cancelling"}

    async def connect(self, urls: Sequence[str]) -> redis_asyncio.Redis:
        """Create a client with defaults, retries included."""
        return redis_asyncio.Redis(**client_arguments(urls[0]))

    async def close(self, client: redis_asyncio.Redis) -> None:
        """Close its connections."""
        await client.aclose()

    async def acquire(self, handle: AsyncLock, wait: float) -> AsyncLock | None:
        """Wait."""
        return handle if await handle.acquire(blocking_timeout=wait) else None

    async def renew(self, hold: AsyncLock, ttl: float) -> None:
        """Set the remaining time, not add to it."""
        await hold.extend(ttl, replace_ttl=True)

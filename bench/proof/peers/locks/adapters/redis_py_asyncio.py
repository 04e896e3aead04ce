"""The `Lock` of redis-py, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis import asyncio as redis_asyncio
from redis.exceptions import LockError, LockNotOwnedError

from bench.proof.peers.locks.contender import Contender, client_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio.lock import Lock

    from bench.proof.peers.locks.contender import Body


class RedisPyAsyncLock(Contender):
    """Created by `client.lock(...)`, as in its documentation."""

    title = "redis-py"
    packages = ("redis",)
    is_async = True
    offers = frozenset({"wire", "ttl", "alone", "with", "endless", "renewal", "cancelling"})
    lost = (LockNotOwnedError,)
    refused = (LockError,)

    async def connect(self, urls: Sequence[str]) -> redis_asyncio.Redis:
        """Create a client with defaults, retries included."""
        return redis_asyncio.Redis(**client_arguments(urls[0]))

    async def close(self, client: redis_asyncio.Redis) -> None:
        """Close its connections."""
        await client.aclose()

    def key(self, name: str) -> str:
        """Its name is its key."""
        return name

    def make(self, client: redis_asyncio.Redis, name: str, ttl: float | None) -> Lock:
        """By default a lease has no end."""
        return client.lock(name, timeout=ttl)

    def make_endless(self, client: redis_asyncio.Redis, name: str) -> Lock:
        """Its default."""
        return client.lock(name)

    async def acquire(self, handle: Lock, wait: float) -> Lock | None:
        """Wait."""
        return handle if await handle.acquire(blocking_timeout=wait) else None

    async def try_acquire(self, handle: Lock) -> Lock | None:
        """Try."""
        return handle if await handle.acquire(blocking=False) else None

    async def release(self, hold: Lock) -> None:
        """Release."""
        await hold.release()

    async def renew(self, hold: Lock, ttl: float) -> None:
        """Set the remaining time, not add to it."""
        await hold.extend(ttl, replace_ttl=True)

    async def run_inside(self, handle: Lock, body: Body) -> None:
        """Use it as a context manager."""
        async with handle:
            body(handle)

"""The `Redlock` of pottery, for threads and for asyncio, on three servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis
from pottery import AIORedlock, ExtendUnlockedLock, Redlock, ReleaseUnlockedLock, synchronize
from redis import asyncio as redis_asyncio

from tests.conformance.locks.contender import AsyncContender, Contender, RedisClientContender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conformance.locks.contender import Client, Handle, Maybe

Masters = set[redis.Redis]
AsyncMasters = set[redis_asyncio.Redis]


class Pottery(Contender):
    """Polls at random intervals of up to 200 ms; a lease can be extended three times."""

    title = "pottery"
    packages = ("pottery", "redis")
    offers = frozenset({"wire", "ttl", "alone", "with", "renewal", "quorum"})
    lost = (ReleaseUnlockedLock, ExtendUnlockedLock)
    servers = 3
    kind: Any
    """The class of its handles."""

    def key(self, name: str) -> str:
        """Return the key."""
        return f"redlock:{name}"

    def make(self, client: Client, name: str, ttl: float | None) -> Handle:
        """By default a lease lasts 10 s."""
        if ttl is None:
            return self.kind(key=name, masters=client)
        return self.kind(key=name, masters=client, auto_release_time=ttl)


class PotteryRedlock(Pottery, RedisClientContender):
    """For threads."""

    offers = Pottery.offers | {"decorator"}
    kind = Redlock

    def connect(self, urls: Sequence[str]) -> Masters:
        """Create a client per server, with defaults."""
        return {redis.Redis.from_url(url) for url in urls}

    def close(self, client: Masters) -> None:
        """Close the clients' connections."""
        for master in client:
            master.close()

    def acquire(self, handle: Redlock, wait: float) -> Redlock | None:
        """Wait."""
        return handle if handle.acquire(timeout=wait) else None

    def renew(self, hold: Redlock, ttl: float) -> None:  # noqa: ARG002  # it extends by its original time
        """Extend."""
        hold.extend()

    def decorate(self, client: Masters, name: str, function: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Use `synchronize`."""
        decorated: Callable[[], Maybe] = synchronize(key=name, masters=client, blocking=False)(function)
        return decorated


class PotteryAIORedlock(Pottery, AsyncContender):
    """For asyncio."""

    offers = Pottery.offers | {"cancelling"}
    kind = AIORedlock

    async def connect(self, urls: Sequence[str]) -> AsyncMasters:
        """Create a client per server, with defaults."""
        return {redis_asyncio.Redis.from_url(url) for url in urls}

    async def close(self, client: AsyncMasters) -> None:
        """Close the clients' connections."""
        for master in client:
            await master.aclose()

    async def acquire(self, handle: AIORedlock, wait: float) -> AIORedlock | None:
        """Wait."""
        return handle if await handle.acquire(timeout=wait) else None

    async def renew(self, hold: AIORedlock, ttl: float) -> None:  # noqa: ARG002  # it extends by its original time
        """Extend."""
        await hold.extend()

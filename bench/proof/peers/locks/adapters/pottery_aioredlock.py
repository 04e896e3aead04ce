"""The `AIORedlock` of pottery, for asyncio, on three servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pottery import AIORedlock, ExtendUnlockedLock, ReleaseUnlockedLock
from redis import asyncio as redis_asyncio

from bench.proof.peers.locks.contender import Contender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.proof.peers.locks.contender import Body

Masters = set[redis_asyncio.Redis]


class PotteryAIORedlock(Contender):
    """Polls at random intervals of up to 200 ms; a lease can be extended three times."""

    title = "pottery"
    packages = ("pottery", "redis")
    is_async = True
    offers = frozenset({"wire", "ttl", "alone", "with", "renewal", "quorum", "cancelling"})
    lost = (ReleaseUnlockedLock, ExtendUnlockedLock)
    servers = 3

    async def connect(self, urls: Sequence[str]) -> Masters:
        """Create a client per server, with defaults."""
        return {redis_asyncio.Redis.from_url(url) for url in urls}

    async def close(self, client: Masters) -> None:
        """Close the clients' connections."""
        for master in client:
            await master.aclose()

    def key(self, name: str) -> str:
        """Return the key."""
        return f"redlock:{name}"

    def make(self, client: Masters, name: str, ttl: float | None) -> AIORedlock:
        """By default a lease lasts 10 s."""
        if ttl is None:
            return AIORedlock(key=name, masters=client)
        return AIORedlock(key=name, masters=client, auto_release_time=ttl)

    async def acquire(self, handle: AIORedlock, wait: float) -> AIORedlock | None:
        """Wait."""
        return handle if await handle.acquire(timeout=wait) else None

    async def try_acquire(self, handle: AIORedlock) -> AIORedlock | None:
        """Try."""
        return handle if await handle.acquire(blocking=False) else None

    async def release(self, hold: AIORedlock) -> None:
        """Release."""
        await hold.release()

    async def renew(self, hold: AIORedlock, ttl: float) -> None:  # noqa: ARG002  # it extends by its original time
        """Extend."""
        await hold.extend()

    async def run_inside(self, handle: AIORedlock, body: Body) -> None:
        """Use it as a context manager."""
        async with handle:
            body(handle)

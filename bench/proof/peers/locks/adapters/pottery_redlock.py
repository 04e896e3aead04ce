"""The `Redlock` of pottery, for threads, on three servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis
from pottery import ExtendUnlockedLock, Redlock, ReleaseUnlockedLock, synchronize

from bench.proof.peers.locks.contender import Contender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.proof.peers.locks.contender import Maybe

Masters = set[redis.Redis]


class PotteryRedlock(Contender):
    """Polls at random intervals of up to 200 ms; a lease can be extended three times."""

    title = "pottery"
    packages = ("pottery", "redis")
    offers = frozenset({"wire", "ttl", "alone", "with", "renewal", "quorum", "decorator"})
    lost = (ReleaseUnlockedLock, ExtendUnlockedLock)
    servers = 3

    def connect(self, urls: Sequence[str]) -> Masters:
        """Create a client per server, with defaults."""
        return {redis.Redis.from_url(url) for url in urls}

    def close(self, client: Masters) -> None:
        """Close the clients' connections."""
        for master in client:
            master.close()

    def key(self, name: str) -> str:
        """Return the key."""
        return f"redlock:{name}"

    def make(self, client: Masters, name: str, ttl: float | None) -> Redlock:
        """By default a lease lasts 10 s."""
        if ttl is None:
            return Redlock(key=name, masters=client)
        return Redlock(key=name, masters=client, auto_release_time=ttl)

    def acquire(self, handle: Redlock, wait: float) -> Redlock | None:
        """Wait."""
        return handle if handle.acquire(timeout=wait) else None

    def try_acquire(self, handle: Redlock) -> Redlock | None:
        """Try."""
        return handle if handle.acquire(blocking=False) else None

    def release(self, hold: Redlock) -> None:
        """Release."""
        hold.release()

    def renew(self, hold: Redlock, ttl: float) -> None:  # noqa: ARG002  # it extends by its original time
        """Extend."""
        hold.extend()

    def decorate(self, client: Masters, name: str, function: Callable[[], Maybe]) -> Callable[[], Maybe]:
        """Use `synchronize`."""
        decorated: Callable[[], Maybe] = synchronize(key=name, masters=client, blocking=False)(function)
        return decorated

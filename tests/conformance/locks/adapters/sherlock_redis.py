"""The `RedisLock` of sherlock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sherlock import LockException, LockTimeoutException, RedisLock

from tests.conformance.locks.contender import RedisClientContender, RefusedAcquire

if TYPE_CHECKING:
    import redis


class SherlockRedisLock(RedisClientContender):
    """Accepts only whole seconds; polls every 100 ms."""

    title = "sherlock"
    packages = ("sherlock", "redis")
    offers = frozenset({"wire", "ttl", "alone", "with", "endless", "renewal"})
    lost = (LockException, RefusedAcquire)
    shortest_ttl = 1.0

    def key(self, name: str) -> str:
        """Its name is its key."""
        return name

    def make(self, client: redis.Redis, name: str, ttl: float | None) -> RedisLock:
        """By default a lease lasts 60 s."""
        if ttl is None:
            return RedisLock(name, client=client)
        return RedisLock(name, client=client, expire=int(ttl) if ttl % 1 == 0 else ttl)

    def make_endless(self, client: redis.Redis, name: str) -> RedisLock:
        """Request a lease without end, as in its documentation."""
        return RedisLock(name, client=client, expire=None)

    def acquire(self, handle: RedisLock, wait: float) -> RedisLock | None:
        """Wait."""
        handle.timeout = wait
        try:
            return handle if handle.acquire() else None
        except LockTimeoutException:
            return None

    def renew(self, hold: RedisLock, ttl: float) -> None:  # noqa: ARG002  # it renews by its original time
        """Renew."""
        if not hold.renew():
            raise RefusedAcquire

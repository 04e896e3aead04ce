"""The `Lock` of python-redis-lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis_lock import AlreadyAcquired, InvalidTimeout, Lock, NotAcquired

from tests.conformance.locks.contender import RedisClientContender

if TYPE_CHECKING:
    import redis


class PythonRedisLock(RedisClientContender):
    """Accepts only whole seconds; waits with BLPOP."""

    title = "python-redis-lock"
    packages = ("python-redis-lock", "redis")
    offers = frozenset({"wire", "ttl", "alone", "with", "endless", "renewal", "background", "listening"})
    lost = (NotAcquired,)
    refused = (InvalidTimeout,)
    shortest_ttl = 1.0
    renewals_per_ttl = 1.5
    taking = b"SET"
    listening = b"BLPOP"

    def key(self, name: str) -> str:
        """Return the key."""
        return f"lock:{name}"

    def make(self, client: redis.Redis, name: str, ttl: float | None) -> Lock:
        """By default a lease has no end."""
        return Lock(client, name, expire=ttl)

    def make_endless(self, client: redis.Redis, name: str) -> Lock:
        """Its default."""
        return Lock(client, name)

    def make_renewing(self, client: redis.Redis, name: str, ttl: float) -> Lock:
        """Use its renewal thread."""
        return Lock(client, name, expire=ttl, auto_renewal=True)

    def acquire(self, handle: Lock, wait: float) -> Lock | None:
        """Wait."""
        return handle if handle.acquire(timeout=wait) else None

    def try_acquire(self, handle: Lock) -> Lock | None:
        """Try once; the error that this object already holds the lock means that it is taken."""
        try:
            return handle if handle.acquire(blocking=False) else None
        except AlreadyAcquired:
            return None

    def renew(self, hold: Lock, ttl: float) -> None:
        """Extend."""
        hold.extend(ttl)

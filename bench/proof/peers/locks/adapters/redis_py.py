"""The `Lock` of redis-py, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.exceptions import LockError, LockNotOwnedError

from bench.proof.peers.locks.contender import RedisClientContender

if TYPE_CHECKING:
    import redis
    from redis.lock import Lock


class RedisPyLock(RedisClientContender):
    """Created by `client.lock(...)`, as in its documentation."""

    title = "redis-py"
    packages = ("redis",)
    offers = frozenset({"wire", "ttl", "alone", "with", "endless", "renewal"})
    lost = (LockNotOwnedError,)
    refused = (LockError,)

    def key(self, name: str) -> str:
        """Its name is its key."""
        return name

    def make(self, client: redis.Redis, name: str, ttl: float | None) -> Lock:
        """By default a lease has no end."""
        made: Lock = client.lock(name, timeout=ttl)
        return made

    def make_endless(self, client: redis.Redis, name: str) -> Lock:
        """Its default."""
        made: Lock = client.lock(name)
        return made

    def acquire(self, handle: Lock, wait: float) -> Lock | None:
        """Wait."""
        return handle if handle.acquire(blocking_timeout=wait) else None

    def try_acquire(self, handle: Lock) -> Lock | None:
        """Try."""
        return handle if handle.acquire(blocking=False) else None

    def release(self, hold: Lock) -> None:
        """Release."""
        hold.release()

    def renew(self, hold: Lock, ttl: float) -> None:
        """Set the remaining time, not add to it."""
        hold.extend(ttl, replace_ttl=True)

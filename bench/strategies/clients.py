"""The Redis client of strategies that do not use the library, and the lock timeout of all strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.strategies.base import LEASE_SECONDS

if TYPE_CHECKING:
    from bench.strategies.base import StrategyContext

WAIT_SECONDS: Final = 60.0
"""Seconds that a buyer waits for any lock before it gives up."""
REPLY_SECONDS: Final = 2 * LEASE_SECONDS
"""Socket timeout for a reply; a blocking command may take as long as a lease."""


class CountingClient(redis.Redis):
    """Counts SET NX, with which all lock libraries request a lock."""

    asked = 0

    def set(  # type: ignore[override]  # only the arguments that these libraries use
        self, name: str, value: str | bytes | int, *, ex: int | None = None, px: int | None = None, nx: bool = False
    ) -> object:
        """Set a key, as redis-py does, and count SET NX."""
        self.asked += nx
        return super().set(name, value, ex=ex, px=px, nx=nx)


def client_of(context: StrategyContext) -> CountingClient:
    """Return a client with the URL's number of connections and without retries, which would hide errors."""
    client = CountingClient.from_url(context.url, socket_timeout=REPLY_SECONDS, retry=Retry(NoBackoff(), 0))
    assert isinstance(client, CountingClient)  # noqa: S101  # for the type checker
    return client

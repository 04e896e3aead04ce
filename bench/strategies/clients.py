"""The client of strategies that do not use the library, and how long all of them wait for a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.strategies.base import LEASE_SECONDS

if TYPE_CHECKING:
    from bench.strategies.base import StrategyContext

WAIT_SECONDS: Final = 60.0
"""For which a buyer waits for a lock before it gives up, whatever the lock."""
REPLY_SECONDS: Final = 2 * LEASE_SECONDS
"""For a reply; a blocking command may take as long as a lease."""


class CountingClient(redis.Redis):
    """Counts SET NX, which is how all libraries of locks ask for one."""

    asked = 0

    def set(  # type: ignore[override]  # only what these libraries say
        self, name: str, value: str | bytes | int, *, ex: int | None = None, px: int | None = None, nx: bool = False
    ) -> object:
        """Set, as redis-py does."""
        self.asked += nx
        return super().set(name, value, ex=ex, px=px, nx=nx)


def client_of(context: StrategyContext) -> CountingClient:
    """Return a client with room for every buyer, as the URL says, that hides no error by trying again."""
    client = CountingClient.from_url(context.url, socket_timeout=REPLY_SECONDS, retry=Retry(NoBackoff(), 0))
    assert isinstance(client, CountingClient)  # noqa: S101  # for the type checker
    return client

"""The links to a master behind Sentinels: while no master answers, they retry for a while.

redis-py asks the Sentinels for the master on every new connection. A master that was demoted in the meantime answers
READONLY, and then its connections are closed. So retrying is enough to follow a failover.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING, TypeVar

from redis.exceptions import RedisError

from segmented.stores.redis.async_link import AsyncLink
from segmented.stores.redis.cluster_exchange import Attempts
from segmented.stores.redis.cluster_map import PAUSE_MAX, PAUSE_MIN, passes
from segmented.stores.redis.link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.clock import Clock
    from segmented.protocol.dialect import Dialect
    from segmented.protocol.wire import MakeExchange
    from segmented.stores.redis.connections import Connections
    from segmented.stores.redis.server_check import ServerCheck

AnswerT = TypeVar("AnswerT")


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each further try."""
    pause = PAUSE_MIN
    while True:
        yield pause
        pause = min(2 * pause, PAUSE_MAX)


class SentinelLink(Link):
    """A link that survives a failover, for threads."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        *,
        dialect: Dialect | None,
        patience: float,
        check: ServerCheck | None = None,
    ) -> None:
        """Create a link that retries for up to `patience` seconds."""
        super().__init__(connections, clock, dialect=dialect, check=check)
        self._patience = patience

    def run(self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run an exchange on the current master."""
        attempts = Attempts(make_exchange)
        give_up = min(deadline, self._clock.now() + self._patience)
        for pause in pauses():
            try:
                return super().run(attempts.direct, deadline=deadline)
            except (RedisError, OSError) as error:
                attempts.failed(error)
                if not passes(error) or self._clock.now() + pause >= give_up:
                    raise
            time.sleep(pause)
        raise AssertionError  # pauses do not end


class AsyncSentinelLink(AsyncLink):
    """A link that survives a failover, for asyncio."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        *,
        dialect: Dialect | None,
        patience: float,
        check: ServerCheck | None = None,
    ) -> None:
        """Create a link that retries for up to `patience` seconds."""
        super().__init__(connections, clock, dialect=dialect, check=check)
        self._patience = patience

    async def run(self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run an exchange on the current master."""
        attempts = Attempts(make_exchange)
        give_up = min(deadline, self._clock.now() + self._patience)
        for pause in pauses():
            try:
                return await super().run(attempts.direct, deadline=deadline)
            except (RedisError, OSError) as error:
                attempts.failed(error)
                if not passes(error) or self._clock.now() + pause >= give_up:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError  # pauses do not end

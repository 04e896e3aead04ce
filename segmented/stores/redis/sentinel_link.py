"""The links to a master by way of Sentinels: while no master answers, they ask again, for a while.

Every new connection asks the Sentinels who is the master (redis-py does), and a master that was demoted in the meantime
says READONLY, after which its connections are given up. So asking again is all it takes to follow a failover.
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
    """Return how long to wait before each further try."""
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
        """Ask again for up to `patience` seconds."""
        super().__init__(connections, clock, dialect=dialect, check=check)
        self._patience = patience

    def run(self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run an exchange on the master, whoever that is."""
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
        """Ask again for up to `patience` seconds."""
        super().__init__(connections, clock, dialect=dialect, check=check)
        self._patience = patience

    async def run(self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run an exchange on the master, whoever that is."""
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

"""Counts all sequences on a fresh embedded server."""

from __future__ import annotations

import random
from itertools import chain
from typing import TYPE_CHECKING, Final

import redis

from bench.counts.sequences import MANY, Steps, operations, strategies
from bench.counts.tally import Counter, Tally
from segmented.models import Order
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED: Final = 1
ROUNDS: Final = (1_000, 2_000)
"""Number of the first order of each round: the first round connects and loads scripts, the second is counted."""


def measure() -> dict[str, Tally]:
    """Start a server, count everything, and stop it. Raises InvalidInput if no server can be started."""
    with (
        ValkeyServer.start() as server,
        RedisStore.from_url(server.url) as store,
        redis.Redis.from_url(server.url) as client,
    ):
        return dict(_counted(store, client, server.url))


def _counted(store: RedisStore, client: redis.Redis, url: str) -> Iterator[tuple[str, Tally]]:
    counter = Counter(client)
    for name, steps in chain(strategies(store, url), operations(store)):
        yield name, _tally(counter, steps)


def _tally(counter: Counter, steps: Steps) -> Tally:
    random.seed(SEED)
    attempts = 0
    try:
        for first in ROUNDS:
            orders = [Order(f"{first + number}", 1) for number in range(MANY)]
            steps.prepare(orders)
            counter.begin()
            attempts = steps.perform(orders)
        return counter.tally(MANY, attempts)
    finally:
        steps.close()

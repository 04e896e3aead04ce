"""A short run against your own server: the duration of a call of the pool, and the server's share of it.

One worker takes and confirms single units from its own pool, under a unique name, whose keys are removed at the end.
Meanwhile it adds the load of one busy client; it touches nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import redis

from segmented.advise.workload import check_within
from segmented.errors import StoreRefused
from segmented.keys import shard_keys
from segmented.stock import Pool
from segmented.stock.pool import Grant

if TYPE_CHECKING:
    from segmented.stores.redis import RedisStore

SECONDS: Final = 2.0
SECONDS_MIN: Final = 0.1
SECONDS_MAX: Final = 60.0
ORDERS_MAX: Final = 10_000
CALLS_AN_ORDER: Final = 2
SCRIPTS: Final = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall")


@dataclass(frozen=True, slots=True)
class Measured:
    """The cost of a call. Times are in seconds."""

    round_trip: float
    """The median of all calls, from this process to the server and back."""
    server_time: float | None
    """Time of the server's thread, for both calls of an order; None if its statistics cannot be read, as on a cluster.

    A mean over all scripts that the server ran meanwhile, including those of other programs.
    """
    orders: int
    """Number of orders that were taken and confirmed."""


def measure(store: RedisStore, *, seconds: float = SECONDS) -> Measured:
    """Measure for about `seconds` seconds, in one thread. The pool made for it is always removed afterwards.

    If the server itself goes away meanwhile, a few small keys stay, under a sku that begins with `advise-`.
    """
    check_seconds(seconds)
    sku = f"advise-{uuid4().hex}"
    try:
        return _measured(store, Pool(store, sku), seconds)
    finally:
        keys = shard_keys(sku)
        store.client.unlink(*keys.listed(), f"{keys.lock}:0")


def check_seconds(seconds: float) -> None:
    """Raise InvalidInput for a duration that is too short or too long."""
    check_within("time to measure", seconds, SECONDS_MIN, SECONDS_MAX, "s")


def _measured(store: RedisStore, pool: Pool, seconds: float) -> Measured:
    pool.open(stock=ORDERS_MAX, segments=1)
    _sell(pool, "warm")  # loads the scripts
    before = _script_stats(store)
    calls: list[float] = []
    end = store.clock.now() + seconds
    orders = 0
    while orders < ORDERS_MAX - 1 and (orders == 0 or store.clock.now() < end):
        calls += _sell(pool, str(orders))
        orders += 1
    after = _script_stats(store)
    server_time = None
    if before is not None and after is not None and after[0] > before[0]:
        server_time = CALLS_AN_ORDER * (after[1] - before[1]) / (after[0] - before[0]) / 1e6
    return Measured(round_trip=median(calls), server_time=server_time, orders=orders)


def _sell(pool: Pool, order_id: str) -> tuple[float, float]:
    clock = pool.store.clock
    began = clock.now()
    grant = pool.grant(order_id, timeout=0)
    granted = clock.now()
    if not isinstance(grant, Grant):
        message = f"the pool made for measuring refused an order: {grant.describe()}"
        raise StoreRefused(message)
    grant.confirm()
    return granted - began, clock.now() - granted


def _script_stats(store: RedisStore) -> tuple[int, int] | None:
    """Return how many scripts the server has run, and for how many microseconds; None if it does not report that."""
    if not isinstance(store.client, redis.Redis):
        return None
    try:
        found = store.client.info("commandstats")
    except redis.RedisError:
        return None
    stats = [found[name] for name in SCRIPTS if name in found]
    return sum(int(each["calls"]) for each in stats), sum(int(each["usec"]) for each in stats)

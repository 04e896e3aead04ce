"""Measures on your own server how long a call of the pool takes.

One worker takes and confirms single units from its own pool, under a unique name, whose keys are removed
at the end. Meanwhile it adds the load of one busy client; it touches nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import redis

from segmented.errors import StoreRefused
from segmented.keys import shard_keys
from segmented.protocol import DropPool
from segmented.stock import Grant, Pool

if TYPE_CHECKING:
    from segmented.stores.redis import RedisStore

SECONDS: Final = 2.0
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


def measure(store: RedisStore) -> Measured:
    """Measure for about two seconds, in one thread. The pool made for it is removed afterwards.

    If this process is killed or the server goes away meanwhile, a few small keys stay, under a sku that begins with
    `advise-`.
    """
    sku, calls = f"advise-{uuid4().hex}", list[float]()
    pool, keys, now = Pool(store, sku), shard_keys(sku), store.clock.now
    try:
        pool.open(stock=ORDERS_MAX, segments=1)
        _sell(pool, "warm")  # loads the scripts
        before, end = _script_stats(store), now() + SECONDS
        for order in range(ORDERS_MAX - 1):
            calls += _sell(pool, str(order))
            if now() >= end:
                break
        after, server_time = _script_stats(store), None
        if before is not None and after is not None and after[0] > before[0]:
            server_time = CALLS_AN_ORDER * (after[1] - before[1]) / (after[0] - before[0]) / 1e6
        return Measured(median(calls), server_time, orders=len(calls) // CALLS_AN_ORDER)
    finally:
        store.client.unlink(*keys.listed(), f"{keys.lock}:0")
        store.execute(DropPool(sku))


def _sell(pool: Pool, order_id: str) -> tuple[float, float]:
    """Return the durations of both calls of an order."""
    now = pool.store.clock.now
    began, grant, granted = now(), pool.grant(order_id, timeout=0), now()
    if not isinstance(grant, Grant):
        raise StoreRefused(f"the pool made for measuring refused an order: {grant.describe()}")
    grant.confirm()
    return granted - began, now() - granted


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

"""Measurements on your own server: the duration of a call of the pool, and the slow work of a past sale.

For the first, one worker takes and confirms single units from its own pool, under a unique name, whose keys are removed
at the end. Meanwhile it adds the load of one busy client; it touches nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import redis

from segmented.advise.workload import check_within
from segmented.errors import InvalidInput, StoreRefused
from segmented.keys import shard_keys
from segmented.stock import Pool, ShardedPool, find_pool
from segmented.stock.pool import Grant

if TYPE_CHECKING:
    from segmented.stores.redis import RedisStore

SECONDS: Final = 2.0
SECONDS_MIN: Final = 0.1
SECONDS_MAX: Final = 60.0
ORDERS_MAX: Final = 10_000
CALLS_AN_ORDER: Final = 2
SCRIPTS: Final = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall")
ENTRIES_MAX: Final = 20_000
"""Maximum number of ledger entries to read per shard, the latest ones."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The cost of a call. Times are in seconds."""

    round_trip: float
    """The median of all calls, from this process to the server and back."""
    server_time: float | None
    """Time of the server's thread, for both calls of an order; None if its statistics cannot be read, as on a cluster.

    A mean over all scripts that the server ran meanwhile, including those of other programs.
    """
    client_time: float
    """CPU time of this process for one order: the mean, of the thread that sold."""
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
    end, used = store.clock.now() + seconds, time.thread_time()
    orders = 0
    while orders < ORDERS_MAX - 1 and (orders == 0 or store.clock.now() < end):
        calls += _sell(pool, str(orders))
        orders += 1
    client_time = (time.thread_time() - used) / orders
    after = _script_stats(store)
    server_time = None
    if before is not None and after is not None and after[0] > before[0]:
        server_time = CALLS_AN_ORDER * (after[1] - before[1]) / (after[0] - before[0]) / 1e6
    return Measured(round_trip=median(calls), server_time=server_time, client_time=client_time, orders=orders)


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


@dataclass(frozen=True, slots=True)
class PastHold:
    """How long segments were held, in seconds."""

    locked: float
    """The mean time of a hold, from its grant to its last confirmation: the slow work and one round trip."""
    orders: int
    """Number of orders in the holds."""
    holds: int
    """Number of holds; one that served an envelope counts once."""
    spread: float
    """Standard deviation of the holds divided by their mean."""

    def hold(self, *, round_trip: float) -> float:
        """Return the slow work alone."""
        return max(0.0, self.locked - round_trip)


def past_hold(store: RedisStore, sku: str) -> PastHold:
    """Read the latest part of a pool's ledger; nothing is changed.

    Counts orders that were granted and confirmed there. Orders that were granted together, such as those of an
    envelope, share one hold. An order that was granted again, to a second worker, counts from the later grant. Raises
    InvalidInput if there is no such order, as in a pool whose orders are reserved without a lock.
    """
    found = find_pool(store, sku)
    spans: list[int] = []
    orders = 0
    for pool in found.shards if isinstance(found, ShardedPool) else (found,):
        grants: dict[str | None, tuple[int | None, int]] = {}
        holds: dict[tuple[int | None, int], tuple[int, int]] = {}
        for entry in pool.read_ledger(after=max(0, pool.state().sequence - ENTRIES_MAX)):
            if entry.kind in {"reserved", "granted"} and entry.fencing_token is not None:
                grant = grants[entry.order_id] = entry.segment, entry.fencing_token
                holds.setdefault(grant, (entry.at_us, 0))
            elif entry.kind == "confirmed" and entry.order_id in grants:
                grant = grants.pop(entry.order_id)
                holds[grant] = holds[grant][0], entry.at_us
                orders += 1
        spans += [end - begin for begin, end in holds.values() if end]
    if not spans:
        message = f"pool {sku!r} has no order that was granted and confirmed lately, so it does not tell a hold"
        raise InvalidInput(message)
    mean = fmean(spans)
    return PastHold(locked=mean / 1e6, orders=orders, holds=len(spans), spread=pstdev(spans) / mean if mean else 0.0)

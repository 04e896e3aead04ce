"""The advisor: whether to segment a stock, into how many segments, and the resulting throughput.

Each of W workers repeats a cycle: wait for a free segment, hold it for S (its lease's time), then spend Z outside. Any
free segment serves any order, and waiting orders form one queue. With K segments the rate is X = min(K / S,
W / (S + Z), what the server and the rows take), the asymptotic bound of a closed system; the mean wait is
W / X - S - Z, the interactive response time law (P. J. Denning and J. P. Buzen, "The Operational Analysis of Queueing
Network Models", ACM Computing Surveys 10(3), 1978).

On M servers each has a queue of its own, and an order cannot choose. The lower end of the range then has the factor
w / (w + M - 1) for K / S, with w = W / (K / M): the product form of balanced networks (J. P. Buzen, "Computational
Algorithms for Closed Queueing Networks with Exponential Servers", Communications of the ACM 16(9), 1973).

The 95th percentile is for holds that vary like an exponential distribution: an order that joins the queue waits for
about X times the mean wait departures (J. D. C. Little, 1961), so the wait is a gamma distribution with that many
stages, here by the cube-root approximation of E. B. Wilson and M. M. Hilferty (1931). If the arrival rate is known and
lower than X, the wait is that of a queue for c servers that together do X orders per second: the delay formula of A. K.
Erlang (1917).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, log
from statistics import median
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

import redis

from segmented.errors import InvalidInput, StoreRefused
from segmented.keys import shard_keys
from segmented.models import QUANTITY_MAX, SEGMENT_COUNT_MAX, STOCK_MAX
from segmented.models.ids import counted
from segmented.protocol import DropPool
from segmented.stock import Grant, Pool

if TYPE_CHECKING:
    from segmented.stores.redis import RedisStore

__all__ = ["Advice", "Measured", "Prediction", "Workload", "advise", "measure", "predict"]

Limit = Literal["segments", "workers", "servers", "rows", "arrivals"]

ROUND_TRIP: Final = 0.0005
"""Seconds; an assumption, for two machines of one data centre. `measure` finds the real value."""
SERVER_TIME: Final = 0.0002
"""Seconds; two scripts of about 0.1 ms each, as a busy machine of 2 cores took them, with Valkey 9.1."""
HOLD_MAX: Final = 3_600
RATE_MAX: Final = 1_000_000_000
NORMAL_95: Final = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""
LATE: Final = 0.05
"""The share of orders that waits longer than the 95th percentile."""
ROUNDING: Final = 1e-9
"""A smaller share of a rate, or a wait of fewer seconds, is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The work of one order, and its workers. Times in seconds, rates in orders per second. Raises InvalidInput."""

    hold: float
    """The slow work of one order while its segment is locked: a payment, a commit. Without the round trips to Redis."""
    workers: int
    """Concurrent workers across all processes. Without `arrivals` all are always busy."""
    stock: int
    quantity: tuple[int, int] = (1, 1)
    """The smallest and the largest order; all sizes between are assumed equally frequent."""
    servers: int = 1
    """Redis or Valkey masters over which the pool is spread."""
    round_trip: float = ROUND_TRIP
    """Round trip of one call of the pool, from worker to server and back."""
    server_time: float = SERVER_TIME
    """Time of the server's one thread for one order, taking and confirming together."""
    row_rate: float | None = None
    """Commits per second that one row of the order database takes, if each segment has a row there."""
    arrivals: float | None = None
    """Arrival rate, orders per second, at random moments; None: saturated."""
    may_overlap: bool | None = None
    """Whether two orders may do the slow work at the same time, so that no lock is needed; None: unknown."""

    def __post_init__(self) -> None:
        for what, value, lowest, highest, unit in (
            ("hold", self.hold, 0, HOLD_MAX, " s"),
            ("round trip", self.round_trip, 1e-6, HOLD_MAX, " s"),
            ("server time", self.server_time, 1e-9, HOLD_MAX, " s"),
            ("workers", self.workers, 1, 1_000_000, ""),
            ("stock", self.stock, 1, STOCK_MAX, ""),
            ("servers", self.servers, 1, 1_000, ""),
            *(("quantity", units, 1, QUANTITY_MAX, "") for units in self.quantity),
            ("row rate", 1.0 if self.row_rate is None else self.row_rate, 1e-3, RATE_MAX, " a second"),
            ("arrivals", 1.0 if self.arrivals is None else self.arrivals, 1e-3, RATE_MAX, " a second"),
        ):
            if not unit and type(value) is not int:
                raise InvalidInput(f"{what} {value!r} is not a whole number")
            if type(value) not in {int, float} or not lowest <= value <= highest:  # not a number is in no range
                raise InvalidInput(f"{what} {value!r} must be between {lowest:,} and {highest:,}{unit}")
        least, most = self.quantity
        if least > most:
            raise InvalidInput(f"quantity {least}-{most}: the smallest order comes first")
        if most > self.stock:
            raise InvalidInput(f"quantity {least}-{most}: the largest order does not fit into a stock of {self.stock}")

    @property
    def orders(self) -> float:
        """The number of orders of average size in the stock."""
        return 2 * self.stock / sum(self.quantity)

    @property
    def busy(self) -> int:
        """The number of workers that can have an order each: at most the number of orders in the stock."""
        return min(self.workers, max(1, int(self.orders)))

    @property
    def locked(self) -> float:
        """Seconds that an order keeps its segment: the reply to its grant, the slow work, the way of its confirm."""
        return self.hold + self.round_trip

    @property
    def cycle(self) -> float:
        """Seconds that an order keeps its worker if it never waits: the hold and another round trip."""
        return self.locked + self.round_trip


@dataclass(frozen=True, slots=True)
class Prediction:
    """Throughput and wait for a given number of segments. Times are in seconds."""

    segments: int
    is_locked: bool
    """Whether an order holds a segment's lock during its slow work. Otherwise units are reserved, and nothing waits."""
    orders_per_second: float
    orders_per_second_low: float
    """The same if handing a segment on takes another round trip, and with a queue of its own on each server."""
    wait_mean: float
    wait_p95: float
    sale_seconds: float
    """How long the stock lasts at this throughput, with orders of average size."""
    limited_by: Limit
    """The resource that limits the throughput."""


def predict(workload: Workload, *, segments: int, is_locked: bool = True) -> Prediction:
    """Predict a pool with this number of segments, each order under the lock of one (`pool.grant`).

    Without locks the slow work is outside any (`pool.reserve`, then confirm), and may overlap without limit.
    """
    bounds: dict[Limit, float] = {
        "workers": workload.busy / workload.cycle,
        "servers": workload.servers / workload.server_time,
    }
    if workload.row_rate is not None:
        bounds["rows"] = segments * workload.row_rate
    if is_locked:
        bounds["segments"] = segments / workload.locked
    most = min(bounds.values())
    servers = min(workload.servers, segments)
    per_segment = workload.busy * servers / segments
    shared = per_segment / (per_segment + servers - 1)
    least = min(most, segments / (workload.locked + workload.round_trip) * shared) if is_locked else most
    # The first of equal ones, so that segments are named only if more of them would help.
    limit = next(name for name, bound in bounds.items() if bound <= most * (1 + ROUNDING))
    pace, sale = most, workload.orders / most
    if workload.arrivals is None:
        mean, late = _rush(workload, most)
    elif workload.arrivals < most:
        # Orders arrive at random servers, and each server's segments are a queue of their own.
        queues = servers if limit == "segments" else 1
        serving = {"segments": segments // queues, "rows": segments, "workers": workload.busy}
        mean, late = _erlang(workload.arrivals / queues, most / queues, serving.get(limit, workload.servers))
        pace, least, limit = workload.arrivals, min(least, workload.arrivals), "arrivals"
        sale = workload.orders / workload.arrivals
    else:
        last = sale - workload.orders / workload.arrivals
        mean, late = last / 2, last * (1 - LATE)
    return Prediction(segments, is_locked, pace, least, mean, late, sale, limit)


def _rush(workload: Workload, pace: float) -> tuple[float, float]:
    """Return mean and 95th percentile of the waits while all workers are busy."""
    mean = workload.busy / pace - workload.cycle
    if mean < ROUNDING:
        return 0.0, 0.0
    ninth = 1 / (9 * max(1.0, pace * mean))
    return mean, float(mean * (1 - ninth + NORMAL_95 * ninth**0.5) ** 3)


def _erlang(arrivals: float, most: float, lanes: int) -> tuple[float, float]:
    """Return mean and 95th percentile of the waits for `lanes` servers that together do `most` orders per second."""
    load = lanes * arrivals / most
    blocked = 1.0  # that all of no lanes are busy; then one lane more at a time, which stays exact for any number
    for lane in range(1, lanes + 1):
        blocked = load * blocked / (lane + load * blocked)
    assert 0 <= blocked <= 1, "it is a probability"
    waits = lanes * blocked / (lanes - load * (1 - blocked))
    spare = most - arrivals
    if waits / spare < ROUNDING:
        return 0.0, 0.0
    return waits / spare, max(0.0, log(max(waits, LATE) / LATE)) / spare


TRIED: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 4_000)
DEEP: Final = 10
"""Largest orders per segment's initial stock, from which on hardly any order has to gather."""
UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation, the expected result, and the alternatives."""

    segments: int
    is_locked: bool
    """True: work under the segment's lock (`pool.grant`). False: no work is slow enough (`pool.reserve`)."""
    reasons: tuple[str, ...]
    """Whole sentences, the most important one first."""
    expected: Prediction
    lock_free: Prediction
    """The same work outside any lock, which is allowed only if two orders may do it at the same time."""
    alternatives: tuple[Prediction, ...]
    """Numbers of segments under their locks, in ascending order; they include the best number and a larger one."""


def advise(workload: Workload) -> Advice:
    """Advise on a sale. The arithmetic is exact; the guesses in it are not.

    Recommends the fewest segments that reach the maximum throughput, never more than there are orders in the stock. If
    `arrivals` are known, it adds segments until 95 % of the orders wait no longer than their own slow work takes, if
    any number achieves that. With several servers the number is a multiple of theirs, so that each has the same number.
    If the slow work may overlap (`may_overlap`), or is no longer than a round trip, the advice is one script without a
    lock. It does not know what else your servers do.
    """
    is_locked = workload.hold > workload.round_trip and not workload.may_overlap
    segments = _fewest(workload, is_locked=is_locked)
    lock_free = predict(workload, segments=segments, is_locked=False)
    expected = predict(workload, segments=segments) if is_locked else lock_free
    useful = segments if is_locked else _fewest(workload, is_locked=True)
    beyond = next((count for count in TRIED if count > useful), useful)
    tried = sorted({*(_spread_evenly(count, workload) for count in TRIED if count <= beyond), useful})
    return Advice(
        segments=segments,
        is_locked=is_locked,
        reasons=tuple(_reasons(workload, expected, lock_free)),
        expected=expected,
        lock_free=lock_free,
        alternatives=tuple(predict(workload, segments=count) for count in tried),
    )


def _fewest(workload: Workload, *, is_locked: bool) -> int:
    """Return the smallest count that is as good as any. No count is worse than a smaller one, so bisection finds it."""

    def tried(count: int) -> Prediction:
        return predict(workload, segments=_spread_evenly(count, workload), is_locked=is_locked)

    def is_enough(count: int) -> bool:
        found = tried(count)
        is_fast = found.orders_per_second >= (1 - ROUNDING) * best.orders_per_second
        wait_max = max(workload.cycle, best.wait_p95)
        return is_fast and (workload.arrivals is None or found.wait_p95 * (1 - ROUNDING) <= wait_max)

    most = max(1, min(SEGMENT_COUNT_MAX, int(workload.orders)))
    best = tried(most)
    return _spread_evenly(1 + bisect_left(range(1, most), 1, key=is_enough), workload)


def _spread_evenly(count: int, workload: Workload) -> int:
    """Return the next number that gives each server as many segments; a single segment is on one of them."""
    if count == 1:
        return 1
    return min(ceil(count / workload.servers), SEGMENT_COUNT_MAX // workload.servers) * workload.servers


def _reasons(workload: Workload, expected: Prediction, lock_free: Prediction) -> Iterator[str]:
    hold, pace = duration(workload.hold), f"{expected.orders_per_second:,.0f} orders/s"
    limit = f"the limit is the {expected.limited_by}"
    if not expected.is_locked:
        why = f"The slow work of {hold} is no longer than a round trip of {duration(workload.round_trip)}"
        yield (
            f"{f'Two orders may do the slow work of {hold} at the same time' if workload.may_overlap else why}, so no "
            f"lock is needed: reserve, work, confirm lets {pace} through; {limit}."
        )
    else:
        rest = f"{expected.segments:,} locks let {pace} through; {limit}"
        if workload.arrivals is not None and expected.limited_by == "arrivals":
            locks = counted(expected.segments, "lock", "serves")
            rest = f"{workload.arrivals:,.0f} orders/s come, and {locks} them, so that few wait for long"
        elif expected.segments == 1:
            rest = f"more segments would not let more through, since {limit}"
        yield (
            f"A segment is held for {duration(workload.locked)} an order (hold and one round trip), so one lock lets "
            f"{1 / workload.locked:,.0f} orders/s through, however many workers there are; {rest}."
        )
        if workload.may_overlap is None:
            yield (
                f"If two orders may do the slow work of {hold} at the same time, no lock is needed: reserve, work, "
                f"confirm lets {lock_free.orders_per_second:,.0f} orders/s through; a dead worker leaves units on hold."
            )
        if min(workload.servers, expected.segments) > 1:
            yield (
                f"Each of the {workload.servers:,} servers has a queue of its own, and an order's id decides in which "
                "it waits: the lower end of the range counts that."
            )
    if expected.segments > 1:
        units = workload.stock / expected.segments
        deep = units / workload.quantity[1]
        gathers = "many orders gather" if deep < DEEP else "hardly any order gathers"
        yield (
            f"A segment begins with {units:,.0f} units, {deep:,.1f} times the largest order: {gathers} units from "
            "several segments, which costs the server a little and refuses nobody."
        )


def duration(seconds: float) -> str:
    """Return seconds as text in a suitable unit."""
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= size), (1e-3, "ms"))
    return f"{seconds / size:,.0f} {unit}" if seconds >= 999.5 * size else f"{seconds / size:.3g} {unit}"


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
    """Time of the server's thread for both calls of an order, a mean over all scripts that ran meanwhile; None if its
    statistics cannot be read, as on a cluster."""
    orders: int
    """Number of orders that were taken and confirmed."""


def measure(store: RedisStore) -> Measured:
    """Measure for about two seconds, with the load of one busy client. The pool made for it is removed afterwards.

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
        scripts, micros = (after - at_first for after, at_first in zip(_script_stats(store), before, strict=True))
        server_time = CALLS_AN_ORDER * micros / scripts / 1e6 if scripts else None
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


def _script_stats(store: RedisStore) -> tuple[int, int]:
    """Return how many scripts the server has run, and for how many microseconds; zeros if it does not report that."""
    found: dict[str, dict[str, int]] = {}
    if isinstance(store.client, redis.Redis):
        with suppress(redis.RedisError):
            found = store.client.info("commandstats")
    stats = [found[name] for name in SCRIPTS if name in found]
    return sum(each["calls"] for each in stats), sum(each["usec"] for each in stats)

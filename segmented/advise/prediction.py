"""Predicts throughput and waiting time for a given number of segments. Pure arithmetic.

Each of W workers repeats a cycle: wait for a free segment, hold it for S (its lease's time), then spend Z outside. Any
free segment serves any order, and waiting orders form one queue. With K segments the rate is X = min(K / S,
W / (S + Z), what the server and the rows take), the asymptotic bound of a closed system; the mean wait is
W / X - S - Z, the interactive response time law (P. J. Denning and J. P. Buzen, "The Operational Analysis of Queueing
Network Models", ACM Computing Surveys 10(3), 1978). If K is close to W and holds vary much, throughput is a few per
cent lower.

On M servers each has a queue of its own, and an order cannot choose. The lower end of the range then has the factor
w / (w + M - 1) for K / S, with w = W / (K / M): the product form of balanced networks (J. P. Buzen, "Computational
Algorithms for Closed Queueing Networks with Exponential Servers", Communications of the ACM 16(9), 1973), exact for one
segment on each server and no time outside.

The 95th percentile is for holds that vary like an exponential distribution: an order that joins the queue waits for
about X times the mean wait departures (J. D. C. Little, 1961), so the wait is a gamma distribution with that many
stages, here by the cube-root approximation of E. B. Wilson and M. M. Hilferty (1931).

If the arrival rate is known and lower than X, the wait is that of a queue for c servers that together do X orders per
second: the delay formula of A. K. Erlang (1917). Constant holds wait about half as long. If the rate is higher than X,
the queue grows until the stock is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log
from typing import Final, Literal

from segmented.errors import InvalidInput
from segmented.models import QUANTITY_MAX, STOCK_MAX

Limit = Literal["segments", "workers", "servers", "rows", "arrivals"]

ROUND_TRIP: Final = 0.0005
"""Seconds; an assumption, for two machines of one data centre. `measure` finds the real value."""
SERVER_TIME: Final = 0.0002
"""Seconds; two scripts of about 0.1 ms each, as a busy machine of 2 cores took them, with Valkey 9.1."""
HOLD_MAX: Final = 3_600
COUNTS_MAX: Final = {"workers": 1_000_000, "stock": STOCK_MAX, "servers": 1_000, "quantity": QUANTITY_MAX}
RATE_MAX: Final = 1_000_000_000
NORMAL_95: Final = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""
LATE: Final = 0.05
"""The share of orders that waits longer than the 95th percentile."""
ROUNDED: Final = 1 + 1e-9
NO_WAIT: Final = 1e-9
"""Seconds; a shorter wait is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The work of one order, and its workers. Times are in seconds, rates in orders per second.

    Raises InvalidInput for impossible numbers.
    """

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
        _check("hold", self.hold, 0, HOLD_MAX, " s")
        _check("round trip", self.round_trip, 1e-6, HOLD_MAX, " s")
        _check("server time", self.server_time, 1e-9, HOLD_MAX, " s")
        least, most = self.quantity
        counts = {"workers": self.workers, "stock": self.stock, "servers": self.servers, "quantity": least}
        for what, count in (*counts.items(), ("quantity", most)):
            if type(count) is not int:
                raise InvalidInput(f"{what} {count!r} is not a whole number")
            _check(what, count, 1, COUNTS_MAX[what])
        for what, rate in (("row rate", self.row_rate), ("arrivals", self.arrivals)):
            if rate is not None:
                _check(what, rate, 1e-3, RATE_MAX, " a second")
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


def _check(what: str, value: float, least: float, most: float, unit: str = "") -> None:
    is_number = type(value) in {int, float} and isfinite(value)
    if not is_number or not least <= value <= most:
        raise InvalidInput(f"{what} {value!r} must be between {least:,} and {most:,}{unit}")


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


def predict(workload: Workload, *, segments: int) -> Prediction:
    """Predict a pool with this number of segments, each order under the lock of one (`pool.grant`)."""
    servers = min(workload.servers, segments)
    per_segment = workload.busy * servers / segments
    shared = per_segment / (per_segment + servers - 1)
    low = segments / (workload.locked + workload.round_trip) * shared
    return _prediction(workload, segments, (segments / workload.locked, low))


def predict_lock_free(workload: Workload, *, segments: int = 1) -> Prediction:
    """Predict the slow work outside any lock (`pool.reserve`, then confirm): it may overlap without limit."""
    return _prediction(workload, segments, None)


def _prediction(workload: Workload, segments: int, locks: tuple[float, float] | None) -> Prediction:
    """Return the prediction if the locks let a rate through, with its lower end; None if there are no locks."""
    bounds: dict[Limit, float] = {
        "workers": workload.busy / workload.cycle,
        "servers": workload.servers / workload.server_time,
    }
    if workload.row_rate is not None:
        bounds["rows"] = segments * workload.row_rate
    if locks is not None:
        bounds["segments"] = locks[0]
    most = min(bounds.values())
    least = most if locks is None else min(most, locks[1])
    # The first of equal ones, so that segments are named only if more of them would help.
    limit = next(name for name, bound in bounds.items() if bound <= most * ROUNDED)
    pace, sale = most, workload.orders / most
    if workload.arrivals is None:
        mean, late = _rush(workload, most)
    elif workload.arrivals < most:
        # Orders arrive at random servers, and each server's segments are a queue of their own.
        queues = min(workload.servers, segments) if limit == "segments" else 1
        serving = {"segments": segments // queues, "rows": segments, "workers": workload.busy}
        mean, late = _erlang(workload.arrivals / queues, most / queues, serving.get(limit, workload.servers))
        pace, least, limit = workload.arrivals, min(least, workload.arrivals), "arrivals"
        sale = workload.orders / workload.arrivals
    else:
        last = sale - workload.orders / workload.arrivals
        mean, late = last / 2, last * (1 - LATE)
    return Prediction(segments, locks is not None, pace, least, mean, late, sale, limit)


def _rush(workload: Workload, pace: float) -> tuple[float, float]:
    """Return mean and 95th percentile of the waits while all workers are busy."""
    mean = workload.busy / pace - workload.cycle
    if mean < NO_WAIT:
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
    if waits / spare < NO_WAIT:
        return 0.0, 0.0
    return waits / spare, max(0.0, log(max(waits, LATE) / LATE)) / spare

"""Predicts throughput and waiting time for a given number of segments. Pure arithmetic.

Each of W workers repeats a cycle: wait for a free segment, hold it for S (its lease's time), then spend Z outside. Any
free segment serves any order, and waiting orders form one queue. With K segments:

    orders/s    X = min(K / S, W / (S + Z), and what server and database take)
    mean wait   W / X - S - Z

The first is the asymptotic bound of a closed system, the second the interactive response time law (P. J. Denning and
J. P. Buzen, "The Operational Analysis of Queueing Network Models", ACM Computing Surveys 10(3), 1978). The bound is
reached when holds hardly vary; if K is close to W and holds vary much, throughput is a few per cent lower.

The 95th percentile is for holds that vary like an exponential distribution: an order that joins the queue waits for
about X times the mean wait departures (J. D. C. Little, 1961), so the wait is a gamma distribution with that many
stages, here by the cube-root approximation of E. B. Wilson and M. M. Hilferty (1931). With constant holds all wait
about the mean.

If the arrival rate (`arrivals`) is known and lower than X, the wait is that of a queue for c servers that together do X
orders per second: the delay formula of A. K. Erlang (1917) for random arrivals and holds that vary like an exponential
distribution. Constant holds wait about half as long. If the rate is higher than X, the queue grows until the stock is
gone; the last order waits for the difference between the time to serve all orders and the time in which they arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from segmented.advise.workload import Workload

Limit = Literal["segments", "workers", "servers", "rows", "database", "arrivals"]

NORMAL_95: Final = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""
ROUNDED: Final = 1 + 1e-9
LATE: Final = 0.05
"""The share of orders that waits longer than the 95th percentile."""
NO_WAIT: Final = 1e-9
"""Seconds; a shorter wait is rounding."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Throughput and wait for a given number of segments. Times are in seconds."""

    segments: int
    is_locked: bool
    """Whether an order holds a segment's lock during its slow work. Otherwise units are reserved, and nothing waits."""
    orders_per_second: float
    wait_mean: float
    wait_p95: float
    sale_seconds: float
    """How long the stock lasts at this throughput, with orders of average size."""
    limited_by: Limit
    """The resource that limits the throughput."""


def predict(workload: Workload, *, segments: int) -> Prediction:
    """Predict a pool with this number of segments, each order under the lock of one (`pool.grant`)."""
    bounds: dict[Limit, float] = {**_bounds(workload, segments), "segments": segments / workload.locked}
    return _prediction(workload, segments, bounds, is_locked=True)


def predict_lock_free(workload: Workload, *, segments: int = 1) -> Prediction:
    """Predict the slow work outside any lock (`pool.reserve`, then confirm): it may overlap without limit."""
    return _prediction(workload, segments, _bounds(workload, segments), is_locked=False)


def _bounds(workload: Workload, segments: int) -> dict[Limit, float]:
    """Return the maximum throughput of each resource."""
    bounds: dict[Limit, float] = {
        "workers": workload.busy / workload.cycle,
        "servers": workload.servers / workload.server_time,
    }
    if workload.row_rate is not None:
        bounds["rows"] = segments * workload.row_rate
    if workload.database_rate is not None:
        bounds["database"] = workload.database_rate
    return bounds


def _prediction(workload: Workload, segments: int, bounds: dict[Limit, float], *, is_locked: bool) -> Prediction:
    most = min(bounds.values())
    # The first of equal ones, so that segments are named only if more of them would help.
    limit = next(name for name, bound in bounds.items() if bound <= most * ROUNDED)
    pace = most
    if workload.arrivals is None:
        mean, late = _rush(workload, most)
    elif workload.arrivals < most:
        lanes = {"segments": segments, "rows": segments, "workers": workload.busy, "servers": workload.servers}
        mean, late = _erlang(workload.arrivals, most, lanes.get(limit, 1))
        pace, limit = workload.arrivals, "arrivals"
    else:
        last = workload.orders / most - workload.orders / workload.arrivals
        mean, late = last / 2, (1 - LATE) * last
    return Prediction(
        segments=segments,
        is_locked=is_locked,
        orders_per_second=pace,
        wait_mean=mean,
        wait_p95=late,
        sale_seconds=workload.orders / pace,
        limited_by=limit,
    )


def _rush(workload: Workload, pace: float) -> tuple[float, float]:
    """Return mean and 95th percentile of the wait while all workers are busy."""
    mean = workload.busy / pace - workload.cycle
    if mean < NO_WAIT:
        return 0.0, 0.0
    return mean, _gamma_p95(mean=mean, stages=max(1.0, pace * mean))


def _erlang(arrivals: float, most: float, lanes: int) -> tuple[float, float]:
    """Return mean and 95th percentile of the wait for `lanes` servers that together do `most` orders per second."""
    load = lanes * arrivals / most
    blocked = 1.0  # that all of no lanes are busy; then one lane more at a time, which stays exact for any number
    for lane in range(1, lanes + 1):
        blocked = load * blocked / (lane + load * blocked)
    waits = lanes * blocked / (lanes - load * (1 - blocked))
    spare = most - arrivals
    return waits / spare, max(0.0, log(max(waits, LATE) / LATE)) / spare


def _gamma_p95(*, mean: float, stages: float) -> float:
    ninth = 1 / (9 * stages)
    return float(mean * (1 - ninth + NORMAL_95 * ninth**0.5) ** 3)

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

Several shards, a burst, holds of a known spread and the cores of several hosts have no such formulas:
`segmented.advise.lines` plays them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log
from typing import TYPE_CHECKING, Final, Literal

from segmented.advise.lines import WORKERS_MAX, counted, play

if TYPE_CHECKING:
    from segmented.advise.lines import Played
    from segmented.advise.workload import Workload

Limit = Literal["segments", "workers", "servers", "rows", "database", "processes", "arrivals"]

NORMAL_95: Final = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""
NORMAL_99: Final = 2.3263478740408408
"""The 99th percentile."""
FAR: Final = 1.05
"""Times the highest rate from which on a line grows steadily, so that chance hardly matters."""
ROUNDED: Final = 1 + 1e-9
LATE: Final = 0.05
"""The share of orders that waits longer than the 95th percentile."""
LATEST: Final = 0.01
"""The share that waits longer than the 99th percentile."""
NO_WAIT: Final = 1e-9
"""Seconds; a shorter wait is rounding."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Throughput and wait for a given number of segments. Times are in seconds."""

    segments: int
    is_locked: bool
    """Whether an order holds a segment's lock during its slow work. Otherwise units are reserved, and nothing waits."""
    orders_per_second: float
    orders_per_second_low: float
    """The same if handing a segment on to the next order takes another round trip."""
    wait_mean: float
    wait_p95: float
    wait_p99: float
    sale_seconds: float
    """How long the stock lasts at this throughput, with orders of average size."""
    limited_by: Limit
    """The resource that limits the throughput."""


def predict(workload: Workload, *, segments: int) -> Prediction:
    """Predict a pool with this number of segments, each order under the lock of one (`pool.grant`)."""
    locks: Limit = "segments"
    per_second = segments * workload.batch
    bounds = {**_bounds(workload, segments), locks: per_second / workload.locked}
    slow = {**bounds, locks: per_second / (workload.locked + workload.round_trip)}
    return _prediction(workload, segments, bounds, slow, is_locked=True)


def predict_lock_free(workload: Workload, *, segments: int = 1) -> Prediction:
    """Predict the slow work outside any lock (`pool.reserve`, then confirm): it may overlap without limit."""
    bounds = _bounds(workload, segments)
    return _prediction(workload, segments, bounds, bounds, is_locked=False)


def _bounds(workload: Workload, segments: int) -> dict[Limit, float]:
    """Return the maximum throughput of each resource, orders per second."""
    bounds: dict[Limit, float] = {
        "workers": workload.busy * workload.batch / workload.cycle,
        "servers": workload.servers / (workload.server_time * workload.share),
    }
    if workload.processes_in_all is not None:
        bounds["processes"] = workload.processes_in_all / (workload.client_time * workload.share)
    if workload.row_rate is not None:
        bounds["rows"] = segments * workload.row_rate
    if workload.database_rate is not None:
        bounds["database"] = workload.database_rate
    return bounds


def _prediction(
    workload: Workload, segments: int, bounds: dict[Limit, float], slow: dict[Limit, float], *, is_locked: bool
) -> Prediction:
    most, least = min(bounds.values()), min(slow.values())
    # The first of equal ones, so that segments are named only if more of them would help.
    limit = next(name for name, bound in bounds.items() if bound <= most * ROUNDED)
    played = _played(workload, segments, most, is_locked=is_locked)
    served = most if played is None else min(most, played.batches_per_second * workload.batch)
    if workload.rush is None or (workload.burst is None and workload.rush > FAR * served):
        least *= served / most
        most = served
    if played is not None and workload.hosts is not None:  # how segments are handed on was played, too
        least = most
    pace = most
    if workload.rush is None:
        waits = _rush(workload, most)
    elif workload.rush < most:
        lanes = {"segments": segments, "rows": segments, "workers": workload.busy, "servers": workload.servers}
        waits = _erlang(workload.rush / workload.batch, most / workload.batch, lanes.get(limit, 1))
        pace, least, limit = workload.rush, min(least, workload.rush), "arrivals"
    else:
        coming = workload.orders if workload.burst is None else workload.burst * workload.batch
        last = coming / most - coming / workload.rush
        waits = Waits(last / 2, (1 - LATE) * last, (1 - LATEST) * last)
    if played is not None:
        found = Waits(played.mean, played.quantile(1 - LATE), played.quantile(1 - LATEST))
        # Only the beginning of a long burst is played, and its line may grow until the end.
        is_growing = workload.rush is not None and workload.rush >= most and workload.batches > counted(workload)
        waits = max(found, waits, key=lambda one: one.mean) if is_growing else found
    return Prediction(
        segments=segments,
        is_locked=is_locked,
        orders_per_second=pace,
        orders_per_second_low=least,
        wait_mean=waits.mean,
        wait_p95=waits.p95,
        wait_p99=waits.p99,
        sale_seconds=_sale_seconds(workload, most),
        limited_by=limit,
    )


def is_exact(workload: Workload) -> bool:
    """Return whether formulas predict this workload: one server, no hosts or burst, holds of an unknown spread."""
    is_plain = workload.servers == 1 and workload.hosts is None
    return is_plain and workload.burst is None and workload.hold_spread is None


def _played(workload: Workload, segments: int, most: float, *, is_locked: bool) -> Played | None:
    """Play the sale where the formulas do not know it: lines of several shards, a burst, holds of a known spread."""
    shards = min(workload.servers, segments) if is_locked else 1
    if shards == 1 and is_exact(replace(workload, servers=1)):
        return None
    if workload.rush is None:
        is_known = (not is_locked and workload.hosts is None) or workload.busy > WORKERS_MAX
    else:  # a line that grows longer than can be played follows the formula
        is_known = workload.rush >= FAR * most and workload.batches > counted(workload)
    if is_known:
        return None
    if not is_locked or workload.busy * shards <= segments:
        is_saturated = workload.rush is None
        kept = workload.locked if is_saturated else workload.cycle  # if orders come, a worker is what they wait for
        lanes = [workload.busy]
        if workload.hosts is not None:  # each master has a core of its own
            lanes = [workload.busy if is_saturated else ceil(workload.busy / workload.servers)] * workload.servers
        return play(workload, lanes=lanes, fixed=kept - workload.hold, most=most)
    count = min(segments, workload.busy) if workload.rush is not None else segments
    lanes = [count // shards + (shard < count % shards) for shard in range(shards)]
    return play(workload, lanes=[max(1, each) for each in lanes], fixed=workload.locked - workload.hold, most=most)


def _sale_seconds(workload: Workload, most: float) -> float:
    """Return how long the stock lasts: as long as its orders take to come, and to be served."""
    served = workload.orders / most
    if workload.arrivals is None:
        return served
    if workload.peak is None or workload.peak_seconds is None:
        return max(served, workload.orders / workload.arrivals)
    later = workload.orders - workload.peak * workload.peak_seconds
    came = workload.orders / workload.peak if later <= 0 else workload.peak_seconds + later / workload.arrivals
    return max(served, came)


@dataclass(frozen=True, slots=True)
class Waits:
    """Mean, 95th and 99th percentile of the waits, in seconds."""

    mean: float
    p95: float
    p99: float


def _rush(workload: Workload, pace: float) -> Waits:
    """Return the waits while all workers are busy."""
    mean = workload.busy * workload.batch / pace - workload.cycle
    if mean < NO_WAIT:
        return Waits(0.0, 0.0, 0.0)
    stages = max(1.0, pace / workload.batch * mean)
    return Waits(mean, *(_gamma(mean=mean, stages=stages, normal=normal) for normal in (NORMAL_95, NORMAL_99)))


def _erlang(arrivals: float, most: float, lanes: int) -> Waits:
    """Return the waits for `lanes` servers that together do `most` batches per second."""
    load = lanes * arrivals / most
    blocked = 1.0  # that all of no lanes are busy; then one lane more at a time, which stays exact for any number
    for lane in range(1, lanes + 1):
        blocked = load * blocked / (lane + load * blocked)
    waits = lanes * blocked / (lanes - load * (1 - blocked))
    spare = most - arrivals
    late, latest = (max(0.0, log(max(waits, share) / share)) / spare for share in (LATE, LATEST))
    return Waits(waits / spare, late, latest)


def _gamma(*, mean: float, stages: float, normal: float) -> float:
    ninth = 1 / (9 * stages)
    return float(mean * (1 - ninth + normal * ninth**0.5) ** 3)

"""The advisor against a simulation of what it does not know by formulas: shards, bursts, spread holds, batches.

The simulation shares no code with the advisor and steps from event to event over arrays: each worker is idle, in line,
at work or on its way back. The workloads are not those by which the advisor was made.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from segmented.advise import Workload, advise, predict
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

SESSION: Final = ROOT / "docs" / "results" / "2026-11-28" / "results.jsonl"
HOLDS: Final = 24_000
WARM: Final = 4_000
ARRIVALS: Final = 100_000
BASE: Final = Workload(hold=0.02, workers=32, stock=10**7, round_trip=0.001, server_time=1e-6)


def holds_of(workload: Workload, dice: np.random.Generator, count: int) -> Numbers:
    """Draw how long a segment is kept: the slow work, log-normal or exponential, and the calls beside it."""
    beside = workload.locked - workload.hold
    if workload.hold_spread is None:
        return dice.exponential(workload.hold, count) + beside
    variance = np.log1p(workload.hold_spread**2)
    slow = np.exp(dice.normal(np.log(workload.hold) - variance / 2, np.sqrt(variance), count))
    return np.asarray(slow + beside)


def saturated(workload: Workload, segments: int) -> tuple[float, Numbers]:
    """Let all workers go round; return holds a second, and the wait before each."""
    dice = np.random.default_rng(7)
    shards = min(workload.servers, segments)
    free = np.full(shards, segments // shards)
    drawn, shard_of = holds_of(workload, dice, WARM + HOLDS), dice.integers(shards, size=4 * HOLDS)
    next_at = dice.uniform(0, workload.cycle, workload.workers)  # of each worker; infinite while it is in line
    is_holding = np.zeros(workload.workers, dtype=bool)
    shard = np.zeros(workload.workers, dtype=int)
    since = np.full(workload.workers, np.inf)  # in line since
    waits: list[float] = []
    now = began = 0.0
    asked = 0
    while len(waits) < WARM + HOLDS:
        worker = int(next_at.argmin())
        now = float(next_at[worker])
        if is_holding[worker]:
            is_holding[worker] = False
            free[shard[worker]] += 1
            next_at[worker] = now + workload.round_trip
        else:
            shard[worker] = shard_of[asked]
            asked += 1
            since[worker], next_at[worker] = now, np.inf
        at = shard[worker]
        in_line = np.where(shard == at, since, np.inf)
        first = int(in_line.argmin())
        if free[at] and np.isfinite(in_line[first]):
            free[at] -= 1
            waits.append(now - float(since[first]))
            since[first], is_holding[first] = np.inf, True
            next_at[first] = now + drawn[len(waits) - 1]
            if len(waits) == WARM:
                began = now
    return HOLDS / (now - began), np.array(waits[WARM:])


def arriving(workload: Workload, segments: int) -> Numbers:
    """Let orders come at random, in a burst first if there is one; return the waits of the burst, or of all."""
    dice = np.random.default_rng(11)
    assert workload.arrivals is not None
    count, warm, rate = ARRIVALS, WARM, workload.arrivals
    if workload.peak is not None and workload.peak_seconds is not None:
        count, warm, rate = int(workload.peak * workload.peak_seconds), 0, workload.peak
    shards = min(workload.servers, segments)
    at = dice.exponential(1 / rate, warm + count).cumsum()
    shard_of, drawn = dice.integers(shards, size=warm + count), holds_of(workload, dice, warm + count)
    waits = np.zeros(warm + count)
    for shard in range(shards):
        ends = np.zeros(segments // shards)
        for order in np.flatnonzero(shard_of == shard):
            lane = int(ends.argmin())
            begin = max(at[order], ends[lane])
            waits[order] = begin - at[order]
            ends[lane] = begin + drawn[order]
    return waits[warm:]


LONE: Final = "segment-locks K=16 N=1 B=1 20ms"
FREE: Final = "segment-locks K=64 N=64 B=1 20ms"
"""The cells that the simulation is calibrated with; all others are held out."""


def mean_of(cell_id: str, value: Callable[[Any], float] = lambda one: one["orders_per_s"]) -> float:
    """Return the mean of a figure over the runs of a published cell that have a rate."""
    return fmean(value(one) for one in session()[cell_id])


@cache
def session() -> dict[str, list[Any]]:
    """Return the runs of the published session that have a rate, by cell."""
    found: dict[str, list[Any]] = {}
    for line in SESSION.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if run.get("orders_per_s"):
            found.setdefault(run["cell_id"], []).append(run)
    return found


def published(*, segments: int, buyers: int, batch: int) -> float:
    """Return the mean rate of a cell of the published session, at 20 ms under the lock."""
    name = "segment-locks" if batch == 1 else "segment-batches"
    return mean_of(f"{name} K={segments} N={buyers} B={batch} 20ms")


SATURATED: Final[list[tuple[int, dict[str, Any]]]] = [
    (3, {"servers": 3, "workers": 4, "hold_spread": 0.0}),
    (3, {"servers": 3, "workers": 4}),
    (6, {"servers": 3, "workers": 10, "hold_spread": 0.5}),
    (10, {"servers": 5, "workers": 16, "hold": 0.008}),
    (12, {"servers": 2, "workers": 30, "hold_spread": 1.2}),
    (1, {"hold_spread": 1.5, "workers": 9}),
    (4, {"hold_spread": 1.5, "workers": 24, "hold": 0.035}),
    (14, {"hold_spread": 0.3, "workers": 18, "hold": 0.05}),
    (4, {"batch": 16, "workers": 12, "hold_spread": 0.8}),
    (6, {"batch": 64, "workers": 20, "servers": 2}),
]
ARRIVING: Final[list[tuple[int, dict[str, Any]]]] = [
    (1, {"arrivals": 30.0, "hold_spread": 1.5}),
    (5, {"arrivals": 170.0, "hold_spread": 0.0}),
    (6, {"arrivals": 200.0, "servers": 3}),
    (12, {"arrivals": 400.0, "servers": 2, "hold_spread": 0.7}),
    (10, {"arrivals": 50.0, "peak": 900.0, "peak_seconds": 4.0}),
    (20, {"arrivals": 100.0, "peak": 1_500.0, "peak_seconds": 10.0, "hold_spread": 0.5}),
    (20, {"arrivals": 50.0, "peak": 1_200.0, "peak_seconds": 60.0, "hold_spread": 1.0}),
    (8, {"arrivals": 20.0, "peak": 280.0, "peak_seconds": 20.0, "servers": 2}),
]


@pytest.mark.parametrize(("segments", "changes"), SATURATED)
def test_saturated_rates_are_within_a_tenth_and_the_95th_percentile_within_a_quarter(
    segments: int, changes: dict[str, Any]
) -> None:
    workload = replace(BASE, **changes)
    expected = predict(workload, segments=segments)
    rate, waits = saturated(workload, segments)
    assert expected.orders_per_second == pytest.approx(rate * workload.batch, rel=0.1)
    assert expected.wait_p95 == pytest.approx(np.quantile(waits, 0.95), rel=0.25, abs=0.001)
    assert expected.wait_mean == pytest.approx(waits.mean(), rel=0.25, abs=0.001)


@pytest.mark.parametrize(("segments", "changes"), ARRIVING)
def test_waits_of_arriving_orders_are_within_a_quarter(segments: int, changes: dict[str, Any]) -> None:
    workload = replace(BASE, workers=500, **changes)
    expected = predict(workload, segments=segments)
    waits = arriving(workload, segments)
    assert expected.wait_p95 == pytest.approx(np.quantile(waits, 0.95), rel=0.25, abs=0.001)
    assert expected.wait_mean == pytest.approx(waits.mean(), rel=0.25, abs=0.001)


@pytest.mark.parametrize(
    ("segments", "batch"), [(1, 1), (4, 1), (16, 1), (20, 1), (32, 1), (64, 1), (16, 4), (16, 16), (16, 64)]
)
def test_published_rates_are_in_the_predicted_range_or_at_most_an_eighth_below(segments: int, batch: int) -> None:
    alone = published(segments=16, buyers=1, batch=1)
    round_trip = (1 / alone - 0.02) / 2  # of the client that measured, its own time included
    workload = Workload(
        hold=0.02, workers=64, stock=10**7, round_trip=round_trip, server_time=0.00021, batch=batch, processes=1
    )
    expected = predict(workload, segments=segments)
    measured = published(segments=segments, buyers=64, batch=batch)
    assert 7 / 8 * expected.orders_per_second_low <= measured <= expected.orders_per_second


def calibrated(*, hold: float, buyers: int, batch: int) -> Workload:
    """Return the work of a published cell: its round trip from a lone buyer, its CPU times where nobody waits."""
    return Workload(
        hold=hold,
        workers=buyers,
        stock=10**7,
        round_trip=(1 / mean_of(LONE) - 0.02) / 2,
        server_time=mean_of(FREE, lambda one: one["work"]["server_us"] * 1e-6),
        client_time=mean_of(FREE, lambda one: one["cpu"]["generator"] / one["orders_per_s"]),
        hosts=1,
        hold_spread=0.0,
        batch=batch,
    )


def simulated_share(strategy: str, segments: int, buyers: int, batch: int, hold_ms: int) -> float:
    """Return the simulated rate of a published cell, divided by the measured one."""
    hold = f"{hold_ms}ms" if hold_ms else "none"
    measured = mean_of(f"{strategy} K={segments} N={buyers} B={batch} {hold}")
    workload = calibrated(hold=hold_ms / 1_000, buyers=buyers, batch=batch)
    return predict(workload, segments=segments).orders_per_second / measured


@pytest.mark.parametrize(
    ("strategy", "segments", "buyers", "batch"),
    [
        *(("segment-locks", segments, 64, 1) for segments in (1, 4, 16, 20, 32, 128)),
        *(("segment-locks", 16, buyers, 1) for buyers in (4, 16, 32, 128)),
        *(("global-lock", 1, buyers, 1) for buyers in (4, 16, 32, 64, 128)),
        *(("segment-batches", 16, 64, batch) for batch in (4, 16)),
    ],
)
def test_the_simulation_is_within_5_percent_of_held_out_published_cells_at_20_ms(
    strategy: str, segments: int, buyers: int, batch: int
) -> None:
    assert simulated_share(strategy, segments, buyers, batch, 20) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("hold_ms", "error"), [(5, 0.1), (1, 0.15)])
def test_with_shorter_holds_the_simulation_is_within_a_tenth_and_then_a_seventh(hold_ms: int, error: float) -> None:
    assert simulated_share("global-lock", 1, 64, 1, hold_ms) == pytest.approx(1, abs=error)
    assert simulated_share("segment-locks", 16, 64, 1, hold_ms) == pytest.approx(1, abs=error)


def test_where_the_client_is_saturated_the_simulation_is_up_to_a_third_too_low() -> None:
    shares = simulated_share("segment-locks", 16, 64, 1, 0), simulated_share("segment-batches", 16, 64, 64, 20)
    assert all(2 / 3 < share < 0.9 for share in shares)


def test_the_advised_number_keeps_the_goal_in_the_simulation() -> None:
    workload = replace(BASE, workers=500, arrivals=300.0, hold_spread=1.0, p99=0.03)
    advice = advise(workload)
    assert advice.expected.wait_p99 <= 0.03
    assert np.quantile(arriving(workload, advice.segments), 0.99) <= 1.25 * 0.03
    assert np.quantile(arriving(workload, advice.segments - 1), 0.99) > 0.03 / 1.25

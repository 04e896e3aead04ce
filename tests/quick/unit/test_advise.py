"""The advisor's arithmetic: exact numbers, and a simulation of workers and segments that it must agree with."""

import heapq
import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from statistics import fmean, quantiles
from typing import Any, Final

import pytest

from segmented.advise import Workload, advise, predict
from segmented.errors import InvalidInput
from tests.support.paths import ROOT

ARTICLE: Final = Workload(hold=0.02, workers=32, stock=10_000, quantity=(1, 5), round_trip=0.001)
"""20 ms under the lock, a round trip of 1 ms: a segment is held for 21 ms, and an order takes 22 ms without waiting."""
SESSION: Final = ROOT / "docs" / "results" / "2026-11-28" / "results.jsonl"
ORDERS: Final = 40_000
WARM: Final = 4_000


def simulated(workload: Workload, segments: int, hold: Callable[[], float]) -> tuple[float, list[float]]:
    """Let the workers go round; return orders a second and how long each waited. Written without the formulas.

    A worker asks for a segment, waits in one line for any, holds it for the slow work and a round trip, and comes back
    after another round trip.
    """
    asking = [(0.0, worker) for worker in range(workload.workers)]
    ends: list[tuple[float, int]] = []
    line: deque[tuple[float, int]] = deque()
    waits: list[float] = []
    now = counted_from = 0.0
    while len(waits) < WARM + ORDERS:
        if ends and (not asking or ends[0][0] <= asking[0][0]):
            now, worker = heapq.heappop(ends)
            heapq.heappush(asking, (now + workload.round_trip, worker))
        else:
            now, worker = heapq.heappop(asking)
            line.append((now, worker))
        while line and len(ends) < segments:
            since, worker = line.popleft()
            waits.append(now - since)
            if len(waits) == WARM:
                counted_from = now
            heapq.heappush(ends, (now + hold() + workload.round_trip, worker))
    return ORDERS / (now - counted_from), waits[WARM:]


# --- against the simulation ---


@pytest.mark.parametrize("segments", [1, 2, 7, 20, 31, 32, 64])
def test_with_constant_holds_pace_and_mean_wait_are_within_a_tenth_of_the_simulation(segments: int) -> None:
    expected = predict(ARTICLE, segments=segments)
    pace, waits = simulated(ARTICLE, segments, lambda: ARTICLE.hold)
    assert expected.orders_per_second == pytest.approx(pace, rel=0.1)
    assert expected.wait_mean == pytest.approx(fmean(waits), rel=0.1, abs=0.0001)


# --- exact numbers ---


def test_with_arrivals_as_many_segments_as_keep_the_wait_below_the_work() -> None:
    workload = replace(ARTICLE, arrivals=400)
    advice = advise(workload)
    assert (advice.segments, advice.expected.orders_per_second, advice.expected.limited_by) == (11, 400, "arrivals")
    assert advice.expected.wait_p95 <= workload.cycle < predict(workload, segments=10).wait_p95
    assert "400 orders/s come, and 11 locks serve them" in advice.reasons[0]


def test_servers_with_queues_of_their_own_lower_the_range() -> None:
    found = predict(replace(ARTICLE, servers=3, workers=4, round_trip=0.0005), segments=3)
    assert found.orders_per_second == pytest.approx(3 / 0.0205)
    assert found.orders_per_second_low == pytest.approx(3 / 0.021 * 4 / 6)
    reasons = " ".join(advise(replace(ARTICLE, servers=3)).reasons)
    assert "Each of the 3 servers has a queue of its own" in reasons


def published(segments: int, buyers: int) -> float:
    """Return the mean rate of a cell of the published session, orders per second, with 20 ms under the lock."""
    cell = f"segment-locks K={segments} N={buyers} B=1 20ms"
    runs = [json.loads(line) for line in SESSION.read_text(encoding="utf-8").splitlines() if f'"{cell}"' in line]
    return fmean(run["orders_per_s"] for run in runs if run.get("orders_per_s"))


@pytest.mark.parametrize("segments", [1, 4, 16, 20, 32, 64])
def test_published_rates_are_in_the_predicted_range_or_an_eighth_below(segments: int) -> None:
    round_trip = (1 / published(segments=16, buyers=1) - 0.02) / 2  # of the client that measured, its own time included
    workload = Workload(hold=0.02, workers=64, stock=10**7, round_trip=round_trip, server_time=0.00021)
    expected = predict(workload, segments=segments)
    low, measured = 7 / 8 * expected.orders_per_second_low, published(segments=segments, buyers=64)
    assert low <= measured <= expected.orders_per_second


# --- bad input ---


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hold": -0.1}, "hold -0.1 must be between 0 and 3,600 s"),
        ({"hold": nan}, "hold nan must be between 0 and 3,600 s"),
        ({"hold": "20ms"}, "hold '20ms' must be between 0 and 3,600 s"),
        ({"workers": 0}, "workers 0 must be between 1 and 1,000,000"),
        ({"workers": 2.0}, "workers 2.0 is not a whole number"),
        ({"workers": True}, "workers True is not a whole number"),
        ({"stock": 0}, "stock 0 must be between 1 and 1,000,000,000,000"),
        ({"quantity": (5, 1)}, "quantity 5-1: the smallest order comes first"),
        ({"quantity": (1, 20_000)}, "quantity 1-20000: the largest order does not fit into a stock of 10000"),
        ({"servers": 0}, "servers 0 must be between 1 and 1,000"),
        ({"round_trip": 0}, "round trip 0 must be between 1e-06 and 3,600 s"),
        ({"server_time": inf}, "server time inf must be between 1e-09 and 3,600 s"),
        ({"row_rate": 0}, "row rate 0 must be between 0.001 and 1,000,000,000 a second"),
        ({"arrivals": -3}, "arrivals -3 must be between 0.001 and 1,000,000,000 a second"),
        ({"arrivals": False}, "arrivals False must be between 0.001 and 1,000,000,000 a second"),
    ],
)
def test_a_number_that_no_sale_can_have_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        replace(ARTICLE, **changes)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("segments", [1, 2, 7, 20, 64])
def test_with_holds_that_vary_pace_and_waits_are_within_a_tenth_of_the_simulation(segments: int) -> None:
    dice = random.Random(20_260_714)
    expected = predict(ARTICLE, segments=segments)
    pace, waits = simulated(ARTICLE, segments, lambda: dice.expovariate(1 / ARTICLE.hold))
    assert expected.orders_per_second == pytest.approx(pace, rel=0.1)
    assert expected.wait_mean == pytest.approx(fmean(waits), rel=0.1, abs=0.0001)
    assert expected.wait_p95 == pytest.approx(quantiles(waits, n=20)[-1], rel=0.1, abs=0.0001)


def simulated_arrivals(workload: Workload, segments: int, dice: random.Random) -> list[float]:
    """Let orders come at random; return how long each waited for a segment, in one line. Holds vary."""
    assert workload.arrivals is not None
    free_at = [0.0] * segments
    waits: list[float] = []
    now = 0.0
    for _ in range(WARM + 5 * ORDERS):
        now += dice.expovariate(workload.arrivals)
        begins = max(now, heapq.heappop(free_at))
        waits.append(begins - now)
        heapq.heappush(free_at, begins + dice.expovariate(1 / workload.hold))
    return waits[WARM:]


@pytest.mark.parametrize(("arrivals", "segments"), [(30, 1), (40, 1), (160, 4), (370, 8), (900, 20)])
def test_with_arrivals_the_waits_are_within_a_tenth_of_the_simulation(arrivals: float, segments: int) -> None:
    workload = replace(ARTICLE, arrivals=arrivals, workers=100, round_trip=1e-6)
    expected = predict(workload, segments=segments)
    waits = simulated_arrivals(workload, segments, random.Random(20_260_714))
    assert (expected.orders_per_second, expected.limited_by) == (arrivals, "arrivals")
    assert expected.wait_mean == pytest.approx(fmean(waits), rel=0.1)
    assert expected.wait_p95 == pytest.approx(quantiles(waits, n=20)[-1], rel=0.1)


def test_one_lock_lets_one_order_a_hold_through() -> None:
    found = predict(ARTICLE, segments=1)
    assert found.orders_per_second == pytest.approx(1 / 0.021)
    assert found.wait_mean == pytest.approx(32 * 0.021 - 0.022)
    assert found.sale_seconds == pytest.approx(10_000 / 3 * 0.021)
    assert (found.limited_by, found.is_locked) == ("segments", True)


def test_above_one_segment_a_worker_nothing_is_gained_and_nobody_waits() -> None:
    found, more = (predict(ARTICLE, segments=count) for count in (32, 320))
    assert found.orders_per_second == more.orders_per_second == pytest.approx(32 / 0.022)
    assert (found.wait_mean, found.wait_p95, found.limited_by) == (0, 0, "workers")


def test_no_more_segments_than_there_are_orders_in_the_stock() -> None:
    advice = advise(replace(ARTICLE, stock=100, quantity=(1, 50), workers=4_000))
    assert (advice.segments, advice.expected.wait_mean) == (3, 0)
    assert advice.reasons[2].startswith(
        "A segment begins with 33 units, 0.7 times the largest order: many orders gather"
    )

"""The simulation of several hosts: against exact times, closed formulas and the limits of cores and database."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

import pytest

from segmented.advise import Workload, advise, predict
from segmented.advise.advice import reasons_of
from segmented.advise.lines import Network, Simulation
from segmented.errors import InvalidInput

WORK: Final = Workload(
    hold=0.02, workers=60, stock=10**7, round_trip=0.002, server_time=1e-5, client_time=1e-4, hosts=3
)
COUNT: Final = 4_000


def rate_of(network: Network, workers: int, *, count: int = COUNT) -> float:
    """Return the orders per second of workers that order again at once."""
    simulation = Simulation(network, random.Random(7))
    simulation.saturate(workers, within=0.01)
    return simulation.run(count=count, warm=count // 4).batches_per_second


# --- exact times ---


def test_a_waiter_of_another_process_takes_a_segment_a_round_trip_later() -> None:
    network = Network(lanes=(1,), hold=lambda: 0.009, outside=0.001, clients=2, turn=0.004)
    assert rate_of(network, 2) == pytest.approx(1 / 0.013, rel=0.001)
    at_once = replace(network, turn=None)
    assert rate_of(at_once, 2) == pytest.approx(1 / 0.009, rel=0.001)


def test_a_process_hands_a_segment_to_its_own_waiters_at_once_for_50_ms() -> None:
    network = Network(lanes=(1,), hold=lambda: 0.009, outside=0.001, clients=1, turn=0.004)
    # The first hand-off and those 9, 18, ... 45 ms later are at once; the release 54 ms later is by a message.
    assert rate_of(network, 3, count=4_200) == pytest.approx(7 / (7 * 0.009 + 0.004), rel=0.002)


def test_a_process_hands_a_segment_to_its_own_waiters_at_once_16_times() -> None:
    network = Network(lanes=(1,), hold=lambda: 0.001, outside=0.0001, clients=1, turn=0.0005)
    assert rate_of(network, 3, count=4_250) == pytest.approx(17 / (17 * 0.001 + 0.0005), rel=0.002)


def test_processes_that_wait_take_turns() -> None:
    network = Network(lanes=(1,), hold=lambda: 0.06, outside=0.001, clients=4, turn=0.001)
    simulation = Simulation(network, random.Random(7))
    simulation.saturate(12, within=0.01)
    # Every order waits for about eleven others. If a process did not get its turn, only brief waits would end.
    assert simulation.run(count=1_200, warm=120).mean == pytest.approx(11 * (0.06 + 0.001 / 2), rel=0.02)


# --- closed formulas ---


def test_where_nobody_waits_the_rate_is_that_of_the_formula() -> None:
    alone = replace(WORK, workers=6, processes=2)  # a process for each worker
    assert predict(alone, segments=64).orders_per_second == pytest.approx(6 / (0.02 + 2 * 0.002), rel=0.005)
    assert predict(alone, segments=64).wait_mean == 0


def test_the_wait_of_orders_that_arrive_is_that_of_erlangs_formula() -> None:
    simulated = replace(WORK, arrivals=120.0, round_trip=1e-6, client_time=1e-9, server_time=1e-9)
    exact = replace(simulated, hosts=None)
    for segments in (3, 4):
        expected, found = (predict(work, segments=segments) for work in (exact, simulated))
        assert found.wait_mean == pytest.approx(expected.wait_mean, rel=0.1)
        assert found.wait_p95 == pytest.approx(expected.wait_p95, rel=0.1)


# --- limits ---


def test_more_hosts_sell_more_until_the_master_is_the_limit() -> None:
    crowd = replace(WORK, workers=400, client_time=0.001, server_time=0.0002)
    found = [predict(replace(crowd, hosts=hosts), segments=400) for hosts in (1, 3, 12)]
    assert [each.orders_per_second for each in found] == pytest.approx([1_000, 3_000, 5_000], rel=0.02)
    assert [each.limited_by for each in found] == ["processes", "processes", "servers"]
    more = predict(replace(crowd, hosts=12, servers=3), segments=399)
    assert more.orders_per_second == pytest.approx(12_000, rel=0.05)


def test_cores_that_are_not_yet_the_limit_cost_a_little() -> None:
    crowd = replace(WORK, workers=60, client_time=0.001)
    free, near = (predict(replace(crowd, hosts=hosts), segments=60).orders_per_second for hosts in (60, 3))
    assert free == pytest.approx(60 / 0.024, rel=0.01)
    assert 0.85 * free < near < 0.97 * free  # 2,500 of the 3,000 orders/s that three cores can do


def test_orders_that_come_faster_than_segments_are_handed_over_are_not_all_served() -> None:
    brief = replace(WORK, workers=4_000, hosts=4_000, hold=0.002, hold_spread=0.0, arrivals=950.0)
    found = predict(brief, segments=4)
    assert found.limited_by == "segments"
    assert 4 / 0.006 < found.orders_per_second < 4 / 0.0042  # without a wait, a segment is kept for 4 ms
    assert found.sale_seconds == pytest.approx(10**7 / found.orders_per_second)
    assert predict(replace(brief, hosts=None), segments=4).limited_by == "arrivals"


def test_processes_are_counted_on_each_host() -> None:
    crowd = replace(WORK, workers=400, client_time=0.001)
    one, many = (predict(replace(crowd, hosts=3, processes=count), segments=400) for count in (1, 2))
    assert many.orders_per_second == pytest.approx(2 * one.orders_per_second, rel=0.02)


def test_the_order_database_is_a_server_of_its_own() -> None:
    assert predict(replace(WORK, database_rate=500), segments=60).orders_per_second == pytest.approx(500, rel=0.02)
    free = predict(WORK, segments=60).orders_per_second
    near = predict(replace(WORK, database_rate=1.05 * free), segments=60).orders_per_second
    assert 0.85 * free < near < 0.95 * free


def test_a_waiter_of_another_host_costs_a_round_trip_that_its_own_process_saves() -> None:
    apart, together = (predict(replace(WORK, workers=40, hosts=hosts), segments=4) for hosts in (40, 1))
    assert apart.orders_per_second == pytest.approx(4 / (0.02 + 2 * 0.002), rel=0.01)
    assert 4 / (0.02 + 0.003) < together.orders_per_second < 4 / (0.02 + 0.002)
    assert apart.orders_per_second_low == apart.orders_per_second


# --- what the advisor says ---


def reasons_for(workload: Workload) -> str:
    found = predict(workload, segments=60)
    return " ".join(reasons_of(workload, found, lock_free=found))


def test_the_advice_says_what_the_hosts_can_do_and_whether_more_would_help() -> None:
    assert (
        "A process spends 100 us of a core on an order, so those of 3 hosts (6 processes) can do 60,000 orders/s; more "
        "of them would help little. Waits for cores of processes and masters are simulated."
    ) in reasons_for(replace(WORK, processes=2))
    busy = replace(WORK, workers=200, client_time=0.01, hosts=1)
    assert "so those of one host (1 process) can do 100 orders/s; more of them would help." in reasons_for(busy)
    assert "can do" not in reasons_for(replace(WORK, hosts=None))


def test_the_advised_number_is_the_smallest_that_sells_as_much_as_any() -> None:
    crowd = replace(WORK, workers=12)
    advice = advise(crowd)
    assert advice.segments == 12
    assert advice.orders_per_second == pytest.approx(12 / 0.024, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hosts": 0}, "hosts 0 must be between 1 and 1,000,000"),
        ({"hosts": 2.0}, "hosts 2.0 is not a whole number"),
        ({"hosts": 61}, "hosts 61 with 61 processes: each has at least one of the workers, and there are 60"),
        (
            {"hosts": 4, "processes": 16},
            "hosts 4 with 64 processes: each has at least one of the workers, and there are 60",
        ),
        ({"client_time": 0}, "client time 0 must be between 1e-09 and 3,600 s"),
    ],
)
def test_hosts_that_no_sale_can_have_are_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        replace(WORK, **changes)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("segments", [1, 61])
def test_with_more_orders_than_can_be_served_only_those_of_the_stock_are_simulated(segments: int) -> None:
    crowd = replace(WORK, workers=64, hosts=4, stock=1_000, arrivals=6_000.0)
    found = predict(crowd, segments=segments)
    assert 0 < found.wait_mean < found.sale_seconds

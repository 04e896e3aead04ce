"""The model of a fleet of masters: closed forms, bounds, and a simulation of the same network as its judge."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from bench.analysis.fleet import Costs, Fleet, lines, residences, throughput
from bench.analysis.model_error import any_free_lane
from tests.support.fleet_simulation import Network, Simulation

ORDERS: Final = 6_000
COSTS: Final = Costs(locked=0.0011, outside=0.0009, client=0.0005, server=0.0003)


def simulated(fleet: Fleet, costs: Costs, *, orders: int = ORDERS) -> float:
    """Return the orders per second of a simulation, which shares no code and no formula with the model.

    An order visits its client's core, its shard's core and the network, waits for a segment of the shard, keeps it for
    the hold, and visits network and cores again before it frees the segment.
    """
    dice = random.Random(23)
    outside, kept = (part / (costs.locked + costs.outside) for part in (costs.outside, costs.locked))
    on_no_core = costs.locked + costs.outside - costs.client - costs.server

    def hold() -> float:
        slow = dice.expovariate(1 / fleet.hold) if fleet.hold_cv else fleet.hold
        return slow + kept * on_no_core

    network = Network(
        lanes=(fleet.segments,) * fleet.masters,
        hold=hold,
        outside=outside * on_no_core,
        clients=fleet.client_cores,
        client=(outside * costs.client, kept * costs.client),
        servers=fleet.server_cores,
        server=(outside * costs.server, kept * costs.server),
        beside=costs.beside,
    )
    simulation = Simulation(network, dice)
    simulation.saturate(fleet.workers, within=fleet.hold)
    return simulation.per_second(count=orders, warm=orders // 4)


def fleet_of(masters: int, segments: int, workers: int, *, hold_cv: float = 0.0, client_cores: int = 8) -> Fleet:
    return Fleet(
        masters=masters,
        segments=segments,
        workers=workers,
        hold=0.02,
        server_cores=masters,
        client_cores=client_cores,
        hold_cv=hold_cv,
    )


@pytest.mark.parametrize(
    "fleet",
    [
        fleet_of(1, 4, 3),
        fleet_of(1, 200, 150),  # the master's core is the limit
        fleet_of(3, 1, 7),
        fleet_of(4, 64, 120, client_cores=2),  # the clients' cores are the limit
    ],
)
def test_constant_holds_agree_with_the_simulation_within_a_twentieth(fleet: Fleet) -> None:
    assert throughput(fleet, COSTS) == pytest.approx(simulated(fleet, COSTS), rel=0.05)


@pytest.mark.long
@pytest.mark.parametrize(
    ("masters", "segments", "workers"), [(1, 4, 12), (2, 2, 12), (3, 1, 7), (8, 2, 32), (16, 4, 90)]
)
def test_holds_that_vary_agree_with_the_simulation_within_three_hundredths(
    masters: int, segments: int, workers: int
) -> None:
    fleet = fleet_of(masters, segments, workers, hold_cv=1.0)
    assert throughput(fleet, COSTS) == pytest.approx(simulated(fleet, COSTS, orders=12_000), rel=0.03)


@pytest.mark.long
@pytest.mark.parametrize(
    ("masters", "workers", "beside"), [(2, 200, 0.0001), (4, 250, 0.0006), (8, 60, 0.0007), (16, 400, 0.003)]
)
def test_work_for_which_no_order_waits_slows_all_as_in_the_simulation(
    masters: int, workers: int, beside: float
) -> None:
    fleet, costs = fleet_of(masters, 256, workers, client_cores=40), replace(COSTS, beside=beside)
    assert throughput(fleet, costs) == pytest.approx(simulated(fleet, costs, orders=12_000), rel=0.05)


def test_one_masters_core_is_a_bound_and_a_second_one_doubles_it() -> None:
    one, two, three = (throughput(fleet_of(masters, 1_024, 1_000, client_cores=100), COSTS) for masters in (1, 2, 3))
    assert one == pytest.approx(1 / 0.0003, rel=0.001)
    assert two == pytest.approx(2 / 0.0003, rel=0.01)
    assert three == pytest.approx(3 / 0.0003, rel=0.01)


def test_one_shard_is_a_birth_and_death_process_and_many_have_the_product_form() -> None:
    for clients, lanes, thinking in ((1, 1, 0.0), (7, 3, 0.1), (40, 16, 0.5), (300, 20, 0.2), (1_000, 64, 3.0)):
        found = lines(clients, shards=1, lanes=lanes, service=0.5, thinking=thinking)
        assert found == pytest.approx(any_free_lane(clients, lanes, service=0.5, thinking=thinking), rel=0.001)
    assert lines(50, shards=16, lanes=1, service=2.0, thinking=0.0) == pytest.approx(16 / 2 * 50 / 65)


def test_the_simulation_of_one_core_is_the_machine_repair_problem() -> None:
    for workers, work, elsewhere in ((2, 0.01, 0.02), (8, 0.004, 0.03), (40, 0.001, 0.05)):
        network = Network(lanes=(workers,), hold=partial(float, elsewhere), outside=0.0, clients=1, client=(work, 0.0))
        simulation = Simulation(network, random.Random(23))
        simulation.saturate(workers, within=elsewhere)
        expected = any_free_lane(workers, 1, service=work, thinking=elsewhere)
        assert simulation.per_second(count=12_000, warm=3_000) == pytest.approx(expected, rel=0.02)


@pytest.mark.long
def test_lanes_that_vary_simulate_the_birth_and_death_process_with_the_product_form() -> None:
    dice = random.Random(23)

    def rate(lanes: tuple[int, ...], workers: int, outside: float) -> float:
        simulation = Simulation(Network(lanes=lanes, hold=lambda: dice.expovariate(2), outside=outside), dice)
        simulation.saturate(workers, within=1.0)
        return simulation.per_second(count=12_000, warm=3_000)

    for workers, lanes, outside in ((7, 3, 0.1), (40, 16, 0.5)):
        expected = any_free_lane(workers, lanes, service=0.5, thinking=outside)
        assert rate((lanes,), workers, outside) == pytest.approx(expected, rel=0.02)
    assert rate((1,) * 16, 50, 0.0) == pytest.approx(16 / 0.5 * 50 / 65, rel=0.02)


def test_orders_at_one_core_wait_for_all_others() -> None:
    fleet = fleet_of(1, 1, 4, client_cores=1)
    alone = Costs(locked=0.5, outside=0.0, client=0.5, server=0.0)
    assert residences(fleet, alone, thinking=0.0) == pytest.approx([0.5, 1.0, 1.5, 2.0])
    both = replace(alone, server=0.25, beside=0.1)
    assert residences(fleet_of(4, 1, 1), both, thinking=3.0) == pytest.approx([0.75], rel=0.01)

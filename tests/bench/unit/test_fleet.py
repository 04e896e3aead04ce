"""The model of a fleet of masters: closed forms, bounds, and a simulation of the same network as its judge."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from bench.analysis.fleet import Costs, Fleet, lines, residences, throughput
from bench.analysis.model_error import any_free_lane

if TYPE_CHECKING:
    from collections.abc import Callable

ORDERS: Final = 12_000
WARM: Final = 3_000
COSTS: Final = Costs(locked=0.0011, outside=0.0009, client=0.0005, server=0.0003)


class Line:
    """A first-come, first-served line before some servers."""

    def __init__(self, servers: int) -> None:
        self.free = servers
        self.waiting: deque[Callable[[], None]] = deque()

    def enter(self, begin: Callable[[], None]) -> None:
        self.waiting.append(begin)
        self._serve()

    def leave(self) -> None:
        self.free += 1
        self._serve()

    def _serve(self) -> None:
        while self.free and self.waiting:
            self.free -= 1
            self.waiting.popleft()()


class Simulation:
    """Workers that go round, event by event; it shares no code and no formula with the model.

    An order visits a client's core, its shard's core and the network, waits for a segment of the shard, keeps it for
    the hold, and visits network and cores again before it frees the segment.
    """

    def __init__(self, fleet: Fleet, costs: Costs, seed: int) -> None:
        self.fleet, self.costs, self.dice = fleet, costs, random.Random(seed)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.now, self.number, self.done, self.began = 0.0, 0, 0, 0.0
        self.segments = [Line(fleet.segments) for _ in range(fleet.masters)]
        self.servers = [Line(1) for _ in range(fleet.server_cores)]
        self.clients = [Line(1) for _ in range(fleet.client_cores)]
        whole = costs.locked + costs.outside
        self.shares = (costs.outside / whole, costs.locked / whole)

    def rate(self) -> float:
        for _ in range(self.fleet.workers):
            self.after(self.dice.random() * self.fleet.hold, self.order)
        while self.done < WARM + ORDERS:
            self.now, _, happens = heapq.heappop(self.events)
            happens()
        return ORDERS / (self.now - self.began)

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + seconds, self.number, happens))

    def order(self) -> None:
        shard = self.dice.randrange(self.fleet.masters)
        self.call(shard, 0, lambda: self.segments[shard].enter(lambda: self.hold(shard)))

    def hold(self, shard: int) -> None:
        mean = self.fleet.hold
        seconds = self.dice.expovariate(1 / mean) if self.fleet.hold_cv else mean
        self.after(seconds, lambda: self.call(shard, 1, lambda: self.end(shard)))

    def end(self, shard: int) -> None:
        self.segments[shard].leave()
        for number, other in enumerate(self.servers):
            if number != shard % len(self.servers) and self.costs.beside:
                self.work(other, self.costs.beside / (len(self.servers) - 1), lambda: None)
        self.done += 1
        if self.done == WARM:
            self.began = self.now
        self.order()

    def call(self, shard: int, place: int, then: Callable[[], None]) -> None:
        """Make the call before or under the segment: a client's core, the network, the shard's core."""
        share, costs = self.shares[place], self.costs
        network = share * (costs.locked + costs.outside - costs.client - costs.server)
        server = self.servers[shard % len(self.servers)]
        client = self.dice.choice(self.clients)
        self.work(
            client,
            share * costs.client,
            lambda: self.after(network, lambda: self.work(server, share * costs.server, then)),
        )

    def work(self, line: Line, mean: float, then: Callable[[], None]) -> None:
        def begin() -> None:
            self.after(self.dice.expovariate(1 / mean), end)

        def end() -> None:
            line.leave()
            then()

        line.enter(begin)


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


GRID: Final = [
    fleet_of(1, 1, 1),
    fleet_of(1, 1, 8),
    fleet_of(1, 4, 3),
    fleet_of(1, 4, 40),
    fleet_of(1, 200, 150),  # the master's core is the limit
    fleet_of(2, 2, 6),
    fleet_of(2, 300, 200),
    fleet_of(3, 1, 7),
    fleet_of(4, 4, 24, client_cores=1),
    fleet_of(4, 64, 120, client_cores=2),  # the clients' cores are the limit
    fleet_of(8, 2, 32),
    fleet_of(16, 4, 100),
    fleet_of(64, 16, 300, client_cores=15),
]


@pytest.mark.parametrize("fleet", GRID, ids=lambda fleet: f"{fleet.masters}x{fleet.segments}-{fleet.workers}")
def test_constant_holds_agree_with_the_simulation_within_a_twentieth(fleet: Fleet) -> None:
    assert throughput(fleet, COSTS) == pytest.approx(Simulation(fleet, COSTS, 23).rate(), rel=0.05)


@pytest.mark.parametrize(
    ("masters", "segments", "workers"), [(1, 4, 12), (2, 2, 12), (3, 1, 7), (8, 2, 32), (16, 4, 90)]
)
def test_holds_that_vary_agree_with_the_simulation_within_three_hundredths(
    masters: int, segments: int, workers: int
) -> None:
    fleet = fleet_of(masters, segments, workers, hold_cv=1.0)
    assert throughput(fleet, COSTS) == pytest.approx(Simulation(fleet, COSTS, 23).rate(), rel=0.03)


@pytest.mark.parametrize(
    ("masters", "workers", "beside"), [(2, 200, 0.0001), (4, 250, 0.0006), (8, 60, 0.0007), (16, 400, 0.003)]
)
def test_work_for_which_no_order_waits_slows_all_as_in_the_simulation(
    masters: int, workers: int, beside: float
) -> None:
    fleet, costs = fleet_of(masters, 256, workers, client_cores=40), replace(COSTS, beside=beside)
    assert throughput(fleet, costs) == pytest.approx(Simulation(fleet, costs, 23).rate(), rel=0.05)


def test_what_each_further_master_costs_all_others_bounds_a_fleet() -> None:
    fleet = fleet_of(64, 64, 1_000, client_cores=100)
    assert throughput(fleet, replace(COSTS, beside=63 * 0.00005)) == pytest.approx(
        64 / (0.0003 + 63 * 0.00005), rel=0.02
    )


def test_a_lone_worker_never_waits() -> None:
    assert throughput(fleet_of(8, 4, 1), COSTS) == pytest.approx(1 / 0.022)


def test_one_masters_core_is_a_bound_and_a_second_one_doubles_it() -> None:
    one, two, three = (throughput(fleet_of(masters, 1_024, 1_000, client_cores=100), COSTS) for masters in (1, 2, 3))
    assert one == pytest.approx(1 / 0.0003, rel=0.001)
    assert two == pytest.approx(2 / 0.0003, rel=0.01)
    assert three == pytest.approx(3 / 0.0003, rel=0.01)


def test_above_what_the_workers_can_do_more_masters_add_nothing() -> None:
    rates = [throughput(fleet_of(masters, 64, 100, client_cores=100), COSTS) for masters in (16, 32, 64)]
    assert rates == pytest.approx([100 / 0.022] * 3, rel=0.005)


def test_one_shard_is_the_birth_and_death_process_and_many_of_one_lane_have_the_product_form() -> None:
    for clients, lanes, thinking in ((1, 1, 0.0), (7, 3, 0.1), (40, 16, 0.5), (300, 20, 0.2), (1_000, 64, 3.0)):
        found = lines(clients, shards=1, lanes=lanes, service=0.5, thinking=thinking)
        assert found == pytest.approx(any_free_lane(clients, lanes, service=0.5, thinking=thinking), rel=0.001)
    assert lines(50, shards=16, lanes=1, service=2.0, thinking=0.0) == pytest.approx(16 / 2 * 50 / 65)


def test_orders_at_one_core_wait_for_all_others() -> None:
    fleet = fleet_of(1, 1, 4, client_cores=1)
    alone = Costs(locked=0.5, outside=0.0, client=0.5, server=0.0)
    assert residences(fleet, alone, thinking=0.0) == pytest.approx([0.5, 1.0, 1.5, 2.0])
    both = replace(alone, server=0.25, beside=0.1)
    assert residences(fleet_of(4, 1, 1), both, thinking=3.0) == pytest.approx([0.75], rel=0.01)

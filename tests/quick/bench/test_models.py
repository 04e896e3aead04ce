"""Models of sales and what a cell needs: lanes, fleets, arrivals, skus, sizes.

The judge of the model of a fleet of masters plays orders in queues for cores and segments, with random numbers.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from statistics import fmean, pstdev
from typing import Final

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from bench import sizing
from bench.analysis.fleet import Costs, Fleet, lines, throughput
from bench.analysis.model_error import any_free_lane, ceiling, random_lane
from bench.engine.cell import Cell, Spike, spike
from bench.engine.checker import broken_promises, check, summed
from bench.engine.percentiles import at_ms, histogram_of
from bench.engine.plan import Estimate, grid_of, turns_of, wanted
from bench.engine.sale import Recorder, choice_of, split
from bench.figures import Arm, Figure, arm_figures
from bench.micro.workers.lanes import holds
from bench.sections import LONG, SHORT, Kind, Section
from bench.strategies.base import GaveUp, Refused, Sold, Verdict
from segmented.models import EntryKind, LedgerEntry
from tests.support.bench.plans import small_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Queues and cores that an order passes. Times are in seconds; work on a core varies exponentially."""

    lanes: tuple[int, ...]
    """Segments of each shard."""
    hold: Callable[[], float]
    """Draws how long a segment is kept while nobody's core works: the slow work and the way of the messages."""
    outside: float
    """The rest of an order's time on no core."""
    clients: int = 0
    """Processes with a core each; 0: unlimited."""
    client: tuple[float, float] = (0.0, 0.0)
    """Work of an order's process before it has a segment, and while it keeps one."""
    servers: int = 0
    """Cores of the masters; 0: unlimited."""
    server: tuple[float, float] = (0.0, 0.0)
    """Work of an order's master before it has a segment, and while it keeps one."""
    beside: float = 0.0
    """Work of all other masters together, for which the order does not wait."""


class Simulation:
    """Workers that order again and again, event by event. A freed segment goes to the first in its shard's queue."""

    def __init__(self, network: Network, dice: random.Random) -> None:
        """Create a network without orders."""
        self._network, self._dice = network, dice
        self._events: list[tuple[float, int, Iterator[float]]] = []
        self._now, self._number, self._asking = 0.0, 0, 0
        self._clients = [0.0] * network.clients  # when each core will have done its work
        self._servers = [0.0] * network.servers
        self._free = list(network.lanes)
        self._queues: list[deque[Iterator[float]]] = [deque() for _ in network.lanes]
        self._granted = 0

    def saturate(self, workers: int, *, within: float) -> None:
        """Let workers begin at random moments `within` a time; each begins an order when its last one has ended."""
        for worker in range(workers):
            self._at(self._dice.random() * within, self._worker(worker % max(1, self._network.clients)))

    def per_second(self, *, count: int, warm: int) -> float:
        """Return the rate of `count` orders that got their segments, after the first `warm`, which are not counted."""
        began = self._now
        while self._granted < warm + count:
            self._now, _, order = heappop(self._events)
            self._continue(order)
            if self._granted <= warm:
                began = self._now
        return count / (self._now - began)

    def _at(self, time: float, order: Iterator[float]) -> None:
        self._number += 1
        heappush(self._events, (time, self._number, order))

    def _continue(self, order: Iterator[float]) -> None:
        """Let an order go on until it has to wait: to a time, or for a segment of the shard that it asks."""
        time = next(order)
        if time == inf:
            self._queues[self._asking].append(order)
        else:
            self._at(time, order)

    def _worker(self, process: int) -> Iterator[float]:
        """Yield the times until which a worker's order waits; infinity while it is in a shard's queue."""
        network = self._network
        while True:
            shard = self._dice.randrange(len(self._free))
            yield from self._call(process, shard, 0)
            if self._free[shard]:
                self._free[shard] -= 1
            else:
                self._asking = shard
                yield inf
            self._granted += 1
            yield self._now + network.hold()
            yield from self._call(process, shard, 1)
            if self._queues[shard]:
                self._continue(self._queues[shard].popleft())
            else:
                self._free[shard] += 1
            others = [core for core in range(network.servers) if core != shard % network.servers]
            if network.beside:
                for core in others:
                    self._done(self._servers, core, network.beside / len(others))
            yield self._now + network.outside

    def _call(self, process: int, shard: int, place: int) -> Iterator[float]:
        """Yield when the core of the process has done its work, then that of the shard's master."""
        network = self._network
        if network.client[place]:
            yield self._done(self._clients, process, network.client[place])
        if network.server[place]:
            yield self._done(self._servers, shard % network.servers, network.server[place])

    def _done(self, cores: list[float], core: int, work: float) -> float:
        """Give a core more work, and return when it is done: a core does its work in order."""
        cores[core] = max(self._now, cores[core]) + self._dice.expovariate(1 / work)
        return cores[core]


COUNTS = st.integers(1, 60)
THINKING = st.floats(0, 1)


def test_as_many_clients_as_random_lanes_sell_half_of_the_ceiling() -> None:
    assert random_lane(1, 1, service=0.02) == pytest.approx(50)
    assert random_lane(16, 16, service=0.02) / ceiling(16, 16, service=0.02) == pytest.approx(16 / 31)
    assert random_lane(1_000, 1_000, service=1.0) == pytest.approx(1_000 * 1_000 / 1_999)


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


def test_one_masters_core_is_a_bound_and_a_second_one_doubles_it() -> None:
    one, two, three = (throughput(fleet_of(masters, 1_024, 1_000, client_cores=100), COSTS) for masters in (1, 2, 3))
    assert one == pytest.approx(1 / 0.0003, rel=0.001)
    assert two == pytest.approx(2 / 0.0003, rel=0.01)
    assert three == pytest.approx(3 / 0.0003, rel=0.01)


def test_a_tenth_is_warm_up_and_a_second_at_most() -> None:
    assert [sizing.warm_up(seconds) for seconds in (2.0, 10.0, 15.0)] == [0.2, 1.0, 1.0]


def test_a_sale_of_15_seconds_is_ended_after_25_and_a_half() -> None:
    assert sizing.time_limit(15.0) == 25.5
    assert sizing.drain(64, 0.02) == pytest.approx(10 + 2 * 64 * 0.03)


def test_oversold_is_what_was_sold_beyond_the_stock() -> None:
    assert [sizing.oversold(sold, 10) for sold in (9, 10, 11)] == [0, 0, 1]


ONE, FOUR = Arm(1, 20), Arm(4, 20)
LONE = {ONE: 0.025}


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def test_the_bound_is_what_may_be_at_once_over_the_hold_of_a_lone_order() -> None:
    for segments, at_once, bound in ((1, 64, 40.0), (4, 64, 160.0), (64, 32, 1_280.0)):
        assert Arm(segments, 20).bound_per_s(LONE, at_once) == pytest.approx(bound)


def test_a_ceiling_below_the_bound_replaces_it_and_asked_bounds_are_beside_figures() -> None:
    asked = {"4 segments, hold 20 ms / one lock": 3.0, "4 segments, hold 20 ms": 0.9}
    rates = {ONE: {0: 20.0, 1: 20.0}, FOUR: {0: 80.0, 1: 80.0}}
    found = by_name(arm_figures(rates, LONE, at_once=64, ceiling={0: 100.0, 1: 400.0}, asked=asked))
    share = found["4 segments, hold 20 ms / its bound of 160/s or the ceiling"]
    assert share.value == pytest.approx((0.8 * 0.5) ** 0.5)
    assert (share.at_least, share.kept) == (0.9, "no")
    assert found["4 segments, hold 20 ms / one lock"].kept == "yes"
    assert found["4 segments, hold 20 ms"].at_least is None


def entry(sequence: int, kind: EntryKind, order_id: str | None, at_us: int) -> LedgerEntry:
    return LedgerEntry(1, sequence, kind, at_us, order_id, 1, ((0, 1),), 0, None)


def test_a_hold_is_from_reserved_to_confirmed_of_the_same_order() -> None:
    entries = [
        entry(1, "opened", None, 0),
        entry(2, "reserved", "a", 1_000_000),
        entry(3, "reserved", "b", 1_500_000),
        entry(4, "reserved", "c", 1_600_000),
        entry(5, "confirmed", "b", 1_520_000),
        entry(6, "confirmed", "a", 1_700_000),
        entry(7, "cancelled", "c", 1_800_000),
    ]
    assert holds(entries) == pytest.approx([0.02, 0.7])


DRAWN = 20_000


@pytest.mark.parametrize(
    ("kind", "deviation"), [("lognormal", 20.0), ("bimodal", 20.0 * (LONG - SHORT) * 0.05**0.5 * 0.95**0.5)]
)
def test_spread_holds_have_the_planned_mean(kind: Kind, deviation: float) -> None:
    random.seed(7)
    section = Section(kind, 20.0)
    drawn = [section.drawn_ms() for _ in range(DRAWN)]
    assert abs(fmean(drawn) - 20.0) < 5 * deviation / DRAWN**0.5
    assert abs(pstdev(drawn) / deviation - 1) < 0.1


CELL = Cell(strategy="global-lock", hold_ms=20, skus=4, zipf=1.0)
SKUS_OF_THE_FIRST = [0, 0, 0, 2, 0, 0, 2, 1, 0, 0, 3, 3]
"""With seed 7."""
CLEAN = Verdict(
    sold=1, available=0, sold_in_sql=None, oversold_in_redis=0, oversold_in_sql=0, refused_wrongly=0, audit="clean"
)


def test_skus_are_chosen_by_rank_and_by_seed_alone() -> None:
    """With 12,000 orders at Zipf 1, the shares 1, 1/2, 1/3 and 1/4 are 5,760, 2,880, 1,920 and 1,440."""
    choice = choice_of(CELL, 7)
    assert [choice.of(number) for number in range(1, 13)] == SKUS_OF_THE_FIRST
    assert choice.shares(12_000, 1) == (5_746, 2_852, 1_944, 1_458)
    assert choice_of(CELL, 8).shares(12_000, 1) == (5_793, 2_890, 1_926, 1_391)
    alike = choice_of(CELL.model_copy(update={"zipf": 0.0}), 7)
    assert alike.shares(12_000, 1) == (3_077, 2_903, 2_994, 3_026)


def test_the_calls_of_each_sku_are_told_apart() -> None:
    recorder = Recorder()
    answers: list[Sold | Refused | GaveUp] = [*[Sold(0.0)] * 6, Refused(2, 1), GaveUp("no lock"), *[Sold(0.0)] * 4]
    for number, answer in enumerate(answers, start=1):
        recorder.note(0, number, [answer], intended=number, asked=number, done=number + 0.5, quantity=1)
    parts = split(recorder, choice_of(CELL, 7))
    assert [list(part.asked) for part in parts] == [[1, 2, 3, 5, 6, 9, 10], [8], [4, 7], [11, 12]]
    assert [list(part.sold_numbers) for part in parts] == [[1, 2, 3, 5, 6, 9, 10], [], [4], [11, 12]]
    assert [list(part.failed) for part in parts] == [[0] * 7, [1], [0, 0], [0, 0]]
    assert [[one.number for one in part.refusals] for part in parts] == [[], [], [7], []]
    assert [part.judged for part in parts] == [[], [], [Refused(2, 1)], []]


def test_a_sku_that_is_oversold_is_not_balanced_by_one_that_has_units_left() -> None:
    """Order 1 and 2 are for sku 0, which has one unit; the unit of sku 1 is left, and nobody asked for it."""
    recorder = Recorder()
    for number in (1, 2):
        recorder.note(0, number, [Sold(0.0)], intended=0.0, asked=0.0, done=1.0, quantity=1)
    verdicts = [replace(CLEAN, sold=2), replace(CLEAN, sold=0, available=1)]
    parts = split(recorder, choice_of(CELL, 7))[:2]
    books = [
        check(part, verdict, opened=1, stocked=1, quantity=1, cancelled=0)
        for part, verdict in zip(parts, verdicts, strict=True)
    ]
    found = summed(books)
    assert (found.stock, found.sold, found.oversold, found.stranded) == (2, 2, 1, 0)
    assert broken_promises(found, (), failed=0) == ("oversold by 1 unit",)


SPIKE = Spike(base=100.0, height=1_000.0, at=2.0, decline=1.5)


def test_a_spike_has_its_base_its_height_and_its_decline() -> None:
    assert SPIKE.rate(np.array([0.0, 1.999, 2.0, 3.5])).tolist() == pytest.approx(
        [100.0, 100.0, 1_000.0, 100.0 + 900.0 / math.e]
    )
    assert SPIKE.expected(2.0) == 200.0
    assert SPIKE.expected(3.5) == pytest.approx(350.0 + 900.0 * 1.5 * (1 - 1 / math.e))
    many = np.concatenate([spike(SPIKE, 10, seed=seed) for seed in range(100)])
    counts, _ = np.histogram(many, bins=[0.0, 1.0, 2.0, 3.5, 10.0])
    wanted = 100 * np.diff([SPIKE.expected(at) for at in (0.0, 1.0, 2.0, 3.5, 10.0)])
    assert (np.abs(counts - wanted) < 4 * np.sqrt(wanted)).all()


def test_the_time_left_comes_from_this_sessions_own_runs(tmp_path: Path) -> None:
    grid = grid_of(small_plan(tmp_path))
    turns = turns_of(grid)
    estimate = Estimate(grid.calibration)
    assert not estimate.is_known
    first = next(one for one in grid.cells if one.key.startswith("segment-locks K=1 "))
    estimate.calibrated(1.4)  # one second beside the sale of 0.4 s
    estimate.took(first, 3.5)  # three seconds beside it
    assert estimate.is_known
    assert estimate.run(first) == 3.5
    other = next(one for one in grid.cells if one.key != first.key and one.seconds == 0.6)
    assert estimate.run(other) == 0.6 + 2.0
    known = set().union(*(wanted(one) for one in grid.cells))
    left = [turn for turn in turns if turn.planned.key in {first.key, other.key} and turn.round == 2]
    arms = len(other.arms)
    assert estimate.left(left, known) == 3.5 + arms * 2.6
    assert estimate.left(left, known - wanted(other)) == 3.5 + arms * 2.6 + 0.4 + 2.0


PLAIN = {"strategy": "segment-locks", "segments": 16, "buyers": 64, "hold_ms": 20.0}


REFUSED: Final[list[tuple[dict[str, object], str]]] = [
    ({"segments": 0}, "greater than or equal to 1"),
    ({"hold_ms": float("nan")}, "less than or equal to 2000|greater than or equal to 0"),
    ({"section": "none"}, "a critical section of kind none has no hold, so 20 ms says two things"),
    ({"hold_ms": 0.0}, "a critical section of kind sleep needs a hold above 0 ms; with 0 it is: none"),
    ({"loop": "open"}, "an open loop needs it"),
    ({"offered_per_s": 5.0}, "offered_per_s belongs to an open loop"),
    ({"segmnets": 3}, "Extra inputs are not permitted"),
    ({"zipf": 1.1}, "zipf = 1.1 is a choice between several skus; give skus, such as skus = 16"),
    ({"skus": 2, "stock": 7}, "stock and case are of a cell with one sku, not with 2"),
]


def test_what_cannot_be_measured_is_refused() -> None:
    for more, said in REFUSED:
        with pytest.raises(ValidationError, match=said):
            Cell.model_validate(PLAIN | more)


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


@given(clients=COUNTS, lanes=COUNTS)
def test_random_lanes_without_thinking_have_the_product_form(clients: int, lanes: int) -> None:
    assert random_lane(clients, lanes, service=2.0) == pytest.approx(lanes / 2 * clients / (clients + lanes - 1))


@given(clients=COUNTS, lanes=COUNTS, thinking=THINKING)
def test_no_model_exceeds_the_ceiling_and_a_free_lane_is_never_below_a_random_one(
    clients: int, lanes: int, thinking: float
) -> None:
    free = any_free_lane(clients, lanes, service=0.5, thinking=thinking)
    drawn = random_lane(clients, lanes, service=0.5, thinking=thinking)
    above = 1 + 1e-9
    assert drawn <= free * above
    bound = min(lanes / 0.5, clients / (0.5 + thinking))  # which constant holds approach (Denning and Buzen, 1978)
    assert free <= bound * above
    assert bound <= ceiling(clients, lanes, service=0.5)


def test_a_free_lane_has_closed_forms_at_the_ends() -> None:
    assert any_free_lane(1, 1, service=0.02, thinking=0.005) == pytest.approx(40)
    assert any_free_lane(8, 16, service=0.02, thinking=0.005) == pytest.approx(8 / 0.025)
    two = any_free_lane(2, 1, service=1.0, thinking=1.0)
    assert two == pytest.approx(4 / 5)  # p0 = 1 / (1 + 2 + 2)
    assert two == pytest.approx(random_lane(2, 1, service=1.0, thinking=1.0))  # one lane is one lane
    assert any_free_lane(500, 20, service=0.02, thinking=0.0001) == pytest.approx(1_000)


def test_the_bound_is_lanes_over_hold() -> None:
    assert [sizing.bound_per_s(*one) for one in ((1, 0.02), (20, 0.025), (64, 0.02))] == [50.0, 800.0, 3_200.0]


def test_calibration_lasts_for_ten_holds() -> None:
    assert [sizing.calibration(hold) for hold in (0.0, 0.02, 0.15, 0.5)] == [1.5, 1.5, 1.5, 5.0]


def test_a_wait_too_short_to_measure_is_a_microsecond_and_one_too_long_stays_in() -> None:
    def waits(*seconds: float) -> list[float]:
        found = histogram_of(np.array(seconds))
        return [at_ms(found, percent) for percent in (50, 99, 100)]

    assert waits(*[0.001] * 98, *[0.5] * 2) == pytest.approx([1.0, 500.0, 500.0], rel=0.001)
    assert (waits(0.0), waits()) == ([0.001] * 3, [0.0] * 3)
    assert waits(100_000.0)[2] == pytest.approx(600_000.0, rel=0.001)

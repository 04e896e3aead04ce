"""The plans of a single flight, interleaved from seeds: the bodies that `SingleFlight` and `AsyncSingleFlight` run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from segmented.errors import AcquireTimeout, SegmentedError, StoreUnavailable
from segmented.locks.flight_plan import Failed, FlightOptions, Loaded, Opened, landing_plan, look_plan
from segmented.models import Cached
from segmented.plans import perform
from segmented.protocol import ForgetCached, ReadCached
from segmented.testing import Killed, Simulation, Sleep
from tests.support.sim.seeds import each_seed

if TYPE_CHECKING:
    from segmented.plans import Plan

NAME = "price"


class Source:
    """What loaders read: a number that only grows. It counts the calls, and notes which run at the same time."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.calls = 0
        self.running: set[str] = set()
        self.together = 0
        self.kept: list[int] = []

    def note_kept(self) -> None:
        """After each step: note every value that has come to be kept, in order."""
        found = self.world.model.execute(ReadCached(NAME))
        if isinstance(found, Cached) and found.kind == "text":
            number = json.loads(found.body)
            if not self.kept or self.kept[-1] != number:
                self.kept.append(number)
        self.running -= {actor.name for actor in self.world.actors if isinstance(actor.outcome, Killed)}


def caller(source: Source, name: str, options: FlightOptions, *, work: float, delay: float = 0.0) -> Plan[object]:
    """Do what `SingleFlight.get` does, with a loader that reads the source at once and then takes its time."""
    yield from perform(Sleep(delay))
    turn = yield from look_plan(NAME, name, options)
    if isinstance(turn, Opened):
        return turn.value
    try:
        source.calls += 1
        number = source.calls
        source.running.add(name)
        source.together = max(source.together, len(source.running))
        yield from perform(Sleep(work))
        source.running.discard(name)
        found = yield from landing_plan(turn, Loaded(number), options)
    except GeneratorExit:  # the process is gone: a dead one cleans nothing up
        raise
    except BaseException:
        yield from _released(turn.claim.releasing())
        raise
    yield from _released(turn.claim.releasing())
    if isinstance(found, Failed):
        raise found.error
    return options.opened(NAME, found)


def _released(operation: object) -> Plan[None]:
    try:
        yield from perform(operation)  # type: ignore[arg-type]  # the claim's own release
    except SegmentedError:
        return


@each_seed(meets=["turns"])
def test_j7_sixteen_callers_of_four_processes_are_one_loader_call(seed: int) -> None:
    world = Simulation(seed)
    source, options = Source(world), FlightOptions(keep=60, ttl=1, timeout=None)
    actors = [
        world.start(f"c{index}", caller(source, f"c{index}", options, work=0.1), process=f"p{index // 4}")
        for index in range(16)
    ]
    world.run()
    assert [actor.outcome for actor in actors] == [1] * 16
    assert source.calls == 1


@each_seed(meets=["turns"])
def test_j7_a_loader_that_dies_costs_its_lease_and_one_more_call(seed: int) -> None:
    world = Simulation(seed)
    source, options = Source(world), FlightOptions(keep=60, ttl=0.5, timeout=None)
    actors = [world.start(f"c{index}", caller(source, f"c{index}", options, work=0.1)) for index in range(8)]
    dead: list[str] = []

    def kill_the_first() -> None:
        if source.running and not dead:
            victim = next(actor for actor in actors if actor.name in source.running)
            dead.append(victim.name)
            world.kill(victim.process)  # by name, and not by chance
            source.running.clear()

    began = world.clock.now()
    world.run(check=kill_the_first)
    assert [actor.outcome for actor in actors if actor.name not in dead] == [2] * 7
    assert source.calls == 2
    assert 0.5 < world.clock.now() - began < 0.75


@each_seed(meets=["turns"])
def test_j7_loaders_that_all_outlive_their_leases_are_few_calls_and_not_one_a_caller(seed: int) -> None:
    """The worst that there is: no renewal comes through, and each loading takes three and a half leases."""
    world = Simulation(seed)
    source, options = Source(world), FlightOptions(keep=60, ttl=0.2, timeout=None)
    actors = [world.start(f"c{index}", caller(source, f"c{index}", options, work=0.7)) for index in range(32)]
    world.run(check=source.note_kept)
    assert source.calls == 4
    assert source.kept == sorted(set(source.kept))
    assert {actor.outcome for actor in actors} <= {1, 2, 3, 4}


@each_seed(meets=["turns", "kills", "losses"])
def test_with_lost_replies_and_deaths_kept_values_never_go_back_and_nobody_hangs(seed: int) -> None:
    world = Simulation(seed, lost_replies=0.05, kills=0.01)
    source = Source(world)
    options = FlightOptions(keep=0.6, ttl=0.2, timeout=3, refresh_ahead=0.2, keep_failures=0.1)
    actors = [
        world.start(
            f"c{index}",
            caller(source, f"c{index}", options, work=0.05 if index % 3 else 0.5, delay=0.08 * index),
            process=f"p{index // 2}",
        )
        for index in range(24)
    ]
    world.run(check=source.note_kept)
    assert source.kept == sorted(set(source.kept))
    for actor in actors:
        assert isinstance(actor.outcome, int | Killed | StoreUnavailable | AcquireTimeout), actor.outcome


@each_seed(meets=["turns", "losses"])
def test_nothing_that_was_read_before_a_change_is_kept_after_it_was_forgotten(seed: int) -> None:
    world = Simulation(seed, lost_replies=0.02)
    source, options = Source(world), FlightOptions(keep=60, ttl=0.3, timeout=None, keep_failures=0.1)
    forgotten: list[int] = []

    def change(delay: float) -> Plan[None]:
        yield from perform(Sleep(delay))
        newest = source.calls
        while True:
            try:
                yield from perform(ForgetCached(NAME))
            except StoreUnavailable:
                continue
            forgotten.append(newest)
            return

    def check() -> None:
        source.note_kept()
        found = world.model.execute(ReadCached(NAME))
        if isinstance(found, Cached) and found.kind == "text" and forgotten:
            assert json.loads(found.body) > max(forgotten)

    for index in range(12):
        plan = caller(source, f"c{index}", options, work=0.15 if index % 4 else 0.5, delay=0.1 * index)
        world.start(f"c{index}", plan)
    for index in range(4):
        world.start(f"change{index}", change(0.25 * index + 0.05))
    world.run(check=check)
    assert len(forgotten) == 4


@each_seed(meets=["turns"])
def test_an_early_refresh_is_one_call_and_nobody_waits_for_it(seed: int) -> None:
    world = Simulation(seed)
    source, options = Source(world), FlightOptions(keep=10, ttl=5, refresh_ahead=4, timeout=None)
    world.start("first", caller(source, "first", options, work=0.1))
    world.run()
    refreshed_at: dict[str, float] = {}

    def timed(name: str) -> Plan[object]:
        found = yield from caller(source, name, options, work=1.0, delay=7.0)
        refreshed_at[name] = world.clock.now()
        return found

    began = world.clock.now()
    actors = [world.start(f"c{index}", timed(f"c{index}")) for index in range(16)]
    world.run()
    assert sorted(str(actor.outcome) for actor in actors) == ["1"] * 15 + ["2"]
    assert source.calls == 2
    late = [name for name, at in refreshed_at.items() if at - began > 7.5]
    assert len(late) == 1

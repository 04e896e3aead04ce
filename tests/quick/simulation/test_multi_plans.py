"""Several locks at once, and values that are loaded once."""

import json
import random
from functools import partial
from typing import Any

from segmented.errors import AcquireTimeout, LeaseLost, LockUnreachable, SegmentedError, StoreUnavailable
from segmented.locks.flights import Failed, FlightOptions, Loaded, Opened, landing_plan, look_plan
from segmented.locks.handle import acquire_plan
from segmented.locks.lease_state import trusted_until
from segmented.locks.lock import LockClaim
from segmented.locks.multi import multi_plan
from segmented.models import Acquired, Cached
from segmented.plans import Now, Plan, perform
from segmented.protocol import AcquireLock, ForgetCached, ReadCached, ReleaseLock
from tests.support.sim.seeds import each_seed
from tests.support.sim.simulator import Actor, Killed, Simulation, Sleep, scattered

NAMES = "abcdef"


class CriticalSections:
    """Rooms by name: it notes who is in which while trusting the lease, and the tokens of each."""

    def __init__(self) -> None:
        self.inside: dict[str, str] = {}
        self.tokens: dict[str, list[int]] = {name: [] for name in NAMES}
        self.overlaps = 0

    def enter(self, who: str, name: str, token: int) -> None:
        self.overlaps += name in self.inside
        self.inside[name] = who
        self.tokens[name].append(token)

    def leave(self, who: str) -> None:
        self.inside = {name: one for name, one in self.inside.items() if one != who}

    def forget_the_dead(self, actors: list[Actor]) -> None:
        for actor in actors:
            if isinstance(actor.outcome, Killed):
                self.leave(actor.name)

    def check(self) -> None:
        assert self.overlaps == 0
        assert all(tokens == sorted(set(tokens)) for tokens in self.tokens.values())


def claims(who: str, names: str, ttl_ms: int) -> list[LockClaim]:
    return [LockClaim(name, who, ttl_ms) for name in sorted(names)]


def visitor(
    sections: CriticalSections, who: str, names: str, *, ttl_ms: int, work: float, timeout: float | None = None
) -> Plan[str]:
    wanted = claims(who, names, ttl_ms)
    try:
        found = yield from scattered(multi_plan(wanted, timeout))
    except AcquireTimeout:
        return "timed out"
    for claim, (acquired, _) in zip(wanted, found, strict=True):
        sections.enter(who, claim.name, acquired.fencing_token)
    end = min(trusted_until(asked_at, ttl_ms) for _, asked_at in found)
    now = yield from perform(Now())
    yield from perform(Sleep(min(work, max(end - now, 0.0))))
    sections.leave(who)
    for claim in wanted:
        yield from perform(claim.releasing())
    return "visited"


def random_names(chance: random.Random) -> str:
    return "".join(chance.sample(NAMES, chance.randint(1, 4)))


@each_seed(meets=["turns"])
def test_overlapping_sets_are_never_held_together_and_all_get_in_by_wake_ups_alone(seed: int) -> None:
    processes = (1, 3, 10)[seed % 3]
    sections, world, chance = CriticalSections(), Simulation(seed), random.Random(seed)
    for index in range(10):
        plan = visitor(sections, f"v{index}", random_names(chance), ttl_ms=60_000, work=0.1)
        world.start(f"v{index}", plan, process=f"p{index % processes}")
    began = world.clock.now()
    world.run()
    assert [actor.outcome for actor in world.actors] == ["visited"] * 10
    sections.check()
    assert world.clock.now() - began < 1.5  # ten of 0.1 s one after another, and no lease waited out


@each_seed(meets=["turns", "kills", "losses"])
def test_with_lost_replies_and_deaths_nobody_overlaps_and_nobody_hangs(seed: int) -> None:
    sections, world, chance = CriticalSections(), Simulation(seed, lost_replies=0.03, kills=0.005), random.Random(seed)
    for index in range(10):
        plan = visitor(sections, f"v{index}", random_names(chance), ttl_ms=200, work=0.05)
        world.start(f"v{index}", plan, process=f"p{index // 2}")
    world.run(check=partial(sections.forget_the_dead, world.actors))
    sections.check()
    ends = {type(actor.outcome) for actor in world.actors}
    assert ends <= {str, Killed, LockUnreachable, StoreUnavailable, LeaseLost}


@each_seed(meets=["turns"])
def test_when_it_times_out_nothing_is_held(seed: int) -> None:
    sections, world = CriticalSections(), Simulation(seed)
    world.start("holder", visitor(sections, "holder", "c", ttl_ms=60_000, work=5.0))
    world.start("late", _later(visitor(sections, "late", "abcde", ttl_ms=60_000, work=1.0, timeout=1.0)))
    actor = world.start("after", _later(_all_free("abde"), seconds=1.2))
    world.run()
    assert world.actors[1].outcome == "timed out"
    assert actor.outcome is True


@each_seed(meets=["turns"])
def test_what_is_held_is_renewed_for_as_long_as_it_waits_for_the_rest(seed: int) -> None:
    sections, world = CriticalSections(), Simulation(seed)
    world.start("holder", visitor(sections, "holder", "b", ttl_ms=60_000, work=5.0))
    patient = world.start("patient", _later(visitor(sections, "patient", "ab", ttl_ms=300, work=0.1)))
    thief = world.start("thief", _later(acquire_plan(LockClaim("a", "thief", 300), 4.0), seconds=0.2))
    world.run()
    assert patient.outcome == "visited"
    assert isinstance(thief.outcome, AcquireTimeout)
    sections.check()


@each_seed(meets=["turns"])
def test_a_name_that_is_revoked_while_it_waits_for_another_is_acquired_again(seed: int) -> None:
    sections, world = CriticalSections(), Simulation(seed)

    world.start("holder", visitor(sections, "holder", "b", ttl_ms=60_000, work=5.0))
    patient = world.start("patient", _later(visitor(sections, "patient", "abc", ttl_ms=300, work=0.1)))
    others = world.start("others", _later(_all_free("bc"), seconds=6.0))
    world.start("operator", _taken_away(sections, "a", at=0.5, seconds=7.0))
    world.run()
    assert patient.outcome == "visited"
    assert others.outcome is True  # nothing after the lost name is held while that is waited for
    sections.check()


@each_seed(25, meets=["turns"])
def test_a_name_whose_renewal_failed_before_the_last_came_free_is_not_handed_out(seed: int) -> None:
    sections, world = CriticalSections(), Simulation(seed)
    world.start("holder", visitor(sections, "holder", "b", ttl_ms=60_000, work=0.62 + seed * 0.001))
    patient = world.start("patient", _later(visitor(sections, "patient", "ab", ttl_ms=300, work=0.1)))
    world.start("operator", _taken_away(sections, "a", at=0.5, seconds=1.0))
    world.run()
    assert patient.outcome == "visited"
    sections.check()


def _later(plan: Plan[Any], *, seconds: float = 0.1) -> Plan[Any]:
    yield from perform(Sleep(seconds))
    return (yield from plan)


def _taken_away(sections: CriticalSections, name: str, *, at: float, seconds: float) -> Plan[None]:
    """Revoke the patient's lease on a name, and be in there for a while."""
    yield from perform(Sleep(at))
    yield from perform(ReleaseLock(name, "patient"))
    answer = yield from perform(AcquireLock(name, "thief", 60_000))
    if isinstance(answer, Acquired):
        sections.enter("thief", name, answer.fencing_token)
        yield from perform(Sleep(seconds))
        sections.leave("thief")
        yield from perform(ReleaseLock(name, "thief"))


def _all_free(names: str) -> Plan[bool]:
    free = True
    for name in names:
        answer = yield from perform(AcquireLock(name, "looker", 10))
        free = free and isinstance(answer, Acquired)
        yield from perform(ReleaseLock(name, "looker"))
    return free


NAME = "price"


class Source:
    """A number that only grows, for loaders to read. It counts the calls, and notes which run at the same time."""

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

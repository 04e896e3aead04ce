"""Several names at once, interleaved from seeds: the same body that `MultiLock` and its twin run."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from segmented.errors import AcquireTimeout, LeaseLost, LockUnreachable, SegmentedError, StoreUnavailable
from segmented.locks.handle import acquire_plan
from segmented.locks.lease_state import trusted_until
from segmented.locks.lock import LockClaim
from segmented.locks.multi import multi_plan
from segmented.models import Acquired
from segmented.plans import Batch, Now, Plan, perform
from segmented.protocol import AcquireLock, ReleaseLock
from segmented.testing import Killed, Simulation, Sleep
from tests.support.sim.seeds import each_seed

if TYPE_CHECKING:
    from segmented.protocol import Effect
    from segmented.testing.simulator import Actor

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


def interleaved(plan: Plan[Any]) -> Plan[Any]:
    """Perform the operations of a batch one by one, so that those of others come in between."""
    reply: Any = None
    failure: BaseException | None = None
    while True:
        try:
            effect: Effect[Any] = plan.send(reply) if failure is None else plan.throw(failure)
        except StopIteration as stop:
            return stop.value
        reply, failure = None, None
        try:
            if isinstance(effect, Batch):
                reply = []
                for operation in effect.operations:
                    try:
                        reply.append((yield from perform(operation)))
                    except SegmentedError as error:
                        reply.append(error)
            else:
                reply = yield effect
        except GeneratorExit:
            plan.close()
            raise
        except Exception as error:  # noqa: BLE001  # the plan's own
            failure = error


def claims(who: str, names: str, ttl_ms: int) -> list[LockClaim]:
    return [LockClaim(name, who, ttl_ms) for name in sorted(names)]


def visitor(
    sections: CriticalSections, who: str, names: str, *, ttl_ms: int, work: float, timeout: float | None = None
) -> Plan[str]:
    wanted = claims(who, names, ttl_ms)
    try:
        found = yield from interleaved(multi_plan(wanted, timeout))
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

"""Semaphores, interleaved from seeds: the same bodies that `Semaphore` and its twin run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from segmented.errors import AcquireTimeout, LockUnreachable, StoreUnavailable
from segmented.locks.handle import acquire_plan
from segmented.locks.lease_state import trusted_until
from segmented.locks.semaphore import PermitClaim
from segmented.plans import Now, Plan, perform
from segmented.testing import Killed, Simulation, Sleep
from tests.support.sim.seeds import each_seed

if TYPE_CHECKING:
    from segmented.testing.simulator import Actor

PERMITS = 3


class CriticalSection:
    """Has place for three: it notes who is inside while trusting the permit, and every token that came in."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.most = 0
        self.tokens: list[int] = []

    def enter(self, name: str, token: int) -> None:
        self.inside.add(name)
        self.most = max(self.most, len(self.inside))
        self.tokens.append(token)

    def forget_the_dead(self, actors: list[Actor]) -> None:
        for actor in actors:
            if isinstance(actor.outcome, Killed):
                self.inside.discard(actor.name)


def visitor(
    section: CriticalSection, name: str, *, ttl_ms: int, work: float, timeout: float | None = None
) -> Plan[str]:
    claim = PermitClaim("door", name, ttl_ms, PERMITS)
    try:
        acquired, asked_at = yield from acquire_plan(claim, timeout)
    except AcquireTimeout:
        return "timed out"
    section.enter(name, acquired.fencing_token)
    end = trusted_until(asked_at, ttl_ms)
    now = yield from perform(Now())
    yield from perform(Sleep(min(work, max(end - now, 0.0))))
    section.inside.discard(name)
    yield from perform(claim.releasing())
    return "visited"


@each_seed(meets=["turns"])
def test_twelve_visitors_go_in_three_at_a_time_by_wake_ups_alone(seed: int) -> None:
    processes = (1, 3, 12)[seed % 3]
    section, world = CriticalSection(), Simulation(seed)
    for index in range(12):
        name = f"v{index}"
        world.start(name, visitor(section, name, ttl_ms=60_000, work=0.5), process=f"p{index % processes}")
    began = world.clock.now()
    world.run()
    assert [actor.outcome for actor in world.actors] == ["visited"] * 12
    assert section.most == PERMITS
    assert len(set(section.tokens)) == 12
    assert world.clock.now() - began == pytest.approx(4 * 0.5, abs=0.1)


@each_seed(meets=["turns", "kills", "losses"])
def test_with_lost_replies_and_deaths_at_most_three_are_inside_and_nobody_hangs(seed: int) -> None:
    section, world = CriticalSection(), Simulation(seed, lost_replies=0.05, kills=0.01)
    for index in range(12):
        name = f"v{index}"
        world.start(name, visitor(section, name, ttl_ms=200, work=0.05), process=f"p{index // 3}")
    world.run(check=partial(section.forget_the_dead, world.actors))
    assert section.most <= PERMITS
    assert len(set(section.tokens)) == len(section.tokens)
    assert {type(actor.outcome) for actor in world.actors} <= {str, Killed, LockUnreachable, StoreUnavailable}


@each_seed(meets=["turns"])
def test_three_permits_of_dead_holders_all_go_to_those_who_wait_in_one_process(seed: int) -> None:
    section, world = CriticalSection(), Simulation(seed)
    for index in range(PERMITS):
        world.start(f"dead{index}", acquire_plan(PermitClaim("door", f"dead{index}", 500, PERMITS), None))
    world.run()
    began = world.clock.now()
    for index in range(PERMITS):
        world.start(f"v{index}", visitor(section, f"v{index}", ttl_ms=60_000, work=1.0), process="one")
    world.run()
    assert section.most == PERMITS
    assert world.clock.now() - began == pytest.approx(1.5, abs=0.02)

"""The historical lock, interleaved from seeds: it excludes while the wall clocks agree, and no longer than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.errors import AcquireTimeout
from segmented.locks.get_set import get_set_plan, give_back_plan
from segmented.plans import Plan, perform
from segmented.testing import Simulation, Sleep
from tests.support.sim.seeds import each_seed

if TYPE_CHECKING:
    from segmented.clock import Clock

NOON = 1_700_000_000.0


class Skewed:
    """A wall clock that is off by some seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def now(self) -> float:
        return NOON + self._clock.now() + self._seconds


class CriticalSection:
    """Notes who is inside."""

    def __init__(self) -> None:
        self.inside = 0
        self.overlaps = 0


def visitor(
    section: CriticalSection, clock: Clock, *, ttl: float, work: float, timeout: float | None = None
) -> Plan[str]:
    try:
        expires_at = yield from get_set_plan("door", ttl, timeout=timeout, wall_clock=clock, chance=lambda: 0.5)
    except AcquireTimeout:
        return "timed out"
    section.overlaps += bool(section.inside)
    section.inside += 1
    yield from perform(Sleep(work))
    section.inside -= 1
    return "visited" if (yield from give_back_plan("door", expires_at, wall_clock=clock)) else "overslept"


@each_seed(meets=["turns"])
def test_with_clocks_that_agree_eight_visitors_are_never_inside_together(seed: int) -> None:
    section, world = CriticalSection(), Simulation(seed)
    for index in range(8):
        world.start(f"v{index}", visitor(section, Skewed(world.clock, 0), ttl=10, work=0.05), process=f"p{index // 2}")
    world.run()
    assert [actor.outcome for actor in world.actors] == ["visited"] * 8
    assert section.overlaps == 0


@each_seed()
def test_with_one_clock_further_ahead_than_the_lease_is_long_two_are_inside_at_once(seed: int) -> None:
    section, world = CriticalSection(), Simulation(seed)

    def late() -> Plan[str]:
        yield from perform(Sleep(0.1))
        return (yield from visitor(section, Skewed(world.clock, 11), ttl=10, work=1.0))

    world.start("right", visitor(section, Skewed(world.clock, 0), ttl=10, work=1.0))
    world.start("ahead", late())
    world.run()
    assert section.overlaps == 1

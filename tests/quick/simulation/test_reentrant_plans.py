"""The reentrant lock's plans, interleaved from seeds: owners enter again while others wait in their process's line."""

from __future__ import annotations

from contextlib import suppress

from segmented.errors import StoreUnavailable
from segmented.locks.handle import acquire_plan
from segmented.locks.reentrant import ReentrantClaim
from segmented.plans import Plan, perform
from segmented.testing import Killed, Simulation, Sleep
from tests.support.sim.seeds import each_seed


class CriticalSection:
    """Who is inside, how deep, and with which tokens."""

    def __init__(self) -> None:
        self.depths: dict[str, int] = {}
        self.tokens: list[tuple[int, str]] = []
        self.overlaps = 0

    def enter(self, owner: str, token: int) -> None:
        self.depths[owner] = self.depths.get(owner, 0) + 1
        self.overlaps += sum(depth > 0 for depth in self.depths.values()) > 1
        self.tokens.append((token, owner))

    def leave(self, owner: str) -> None:
        self.depths[owner] -= 1


def visitor(section: CriticalSection, owner: str, *, depth: int = 3, ttl_ms: int = 1_000) -> Plan[str]:
    """Enter so many times, work inside, and leave as many times, in the order of entering."""
    held: list[ReentrantClaim] = []
    outcome = "visited"
    try:
        for index in range(depth):
            claim = ReentrantClaim("door", f"{owner}{index}", ttl_ms, owner)
            acquired, _ = yield from acquire_plan(claim, None)
            held.append(claim)
            section.enter(owner, acquired.fencing_token)
            yield from perform(Sleep(0.01))
    except StoreUnavailable:
        outcome = "no reply"
    while held:
        section.leave(owner)
        with suppress(StoreUnavailable):
            yield from perform(held.pop(0).releasing())
    return outcome


@each_seed(meets=["turns"])
def test_eight_owners_enter_three_times_each_and_never_together(seed: int) -> None:
    section, world = CriticalSection(), Simulation(seed)
    actors = [world.start(f"o{index}", visitor(section, f"o{index}"), process=f"p{index % 2}") for index in range(8)]
    world.run()
    assert [actor.outcome for actor in actors] == ["visited"] * 8
    assert section.overlaps == 0
    tokens = [token for token, _ in section.tokens]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 8
    assert len(set(section.tokens)) == 8  # one token an owner, however often it enters


@each_seed(meets=["turns", "kills", "losses"])
def test_with_lost_replies_and_deaths_no_count_is_doubled_and_nobody_hangs(seed: int) -> None:
    section, world = CriticalSection(), Simulation(seed, lost_replies=0.03, kills=0.005)
    actors = [
        world.start(f"o{index}", visitor(section, f"o{index}", ttl_ms=300), process=f"p{index}") for index in range(8)
    ]

    def forget_the_dead() -> None:
        for actor in actors:
            if isinstance(actor.outcome, Killed):
                section.depths[actor.name] = 0

    world.run(check=forget_the_dead)
    assert all(actor.is_done for actor in actors)
    assert section.overlaps == 0
    assert world.clock.now() - 1_000 < 8 * 0.4

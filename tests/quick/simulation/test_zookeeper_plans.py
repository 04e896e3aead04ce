"""The plans of `ZooKeeperLock`, interleaved from seeds: the same bodies that both colours run on a real server."""

from __future__ import annotations

import random

from segmented.errors import AcquireTimeout, LeaseLost, StoreUnavailable
from segmented.locks.zookeeper_plan import Claim, Turn, acquire_plan, release_plan
from segmented.plans import Plan, perform
from tests.support.sim.seeds import each_seed
from tests.support.sim.simulator import Killed, Sleep
from tests.support.sim.zookeeper_world import SessionFaults, ZooKeeperWorld

PARENT = "/locks/door"


class CriticalSection:
    """The protected place: it notes who is inside, by which node, and every token whose node was there at the entry.

    A session may end between its holder's last look at it and the entry: the holder enters after the next one, and the
    resource refuses its token.
    """

    def __init__(self, world: ZooKeeperWorld) -> None:
        self.world = world
        self.inside: dict[str, int] = {}
        """Holder -> token, of those who have not learned that they lost the lock."""
        self.tokens: list[int] = []

    def enter(self, name: str, turn: Turn) -> None:
        """Let a holder in; its node is gone only if its session has ended."""
        token = turn.entered.fencing_token
        self.inside[name] = token
        if any(node.zxid == token for node in self.world.nodes):
            self.tokens.append(token)
            return
        process = next(actor.process for actor in self.world.actors if actor.name == name)
        assert self.world.session(process).era > turn.era

    def check(self) -> None:
        """Whoever is inside, and whose session lives, is first in line."""
        holder = self.world.holder()
        living = {node.zxid for node in self.world.nodes}
        inside = [token for token in self.inside.values() if token in living]
        assert inside in ([], [holder.zxid] if holder is not None else [])


def visitor(section: CriticalSection, name: str, *, work: float, timeout: float | None = None) -> Plan[str]:
    claim = Claim("door", name, PARENT)
    try:
        turn = yield from acquire_plan(claim, timeout)
    except AcquireTimeout:
        section.world.clean(name)
        return "timed out"
    except (StoreUnavailable, LeaseLost):
        section.world.clean(name)
        return "failed"
    section.enter(name, turn)
    yield from perform(Sleep(work))
    del section.inside[name]
    try:
        is_released = yield from release_plan(claim, turn, was_tried=False)
    except StoreUnavailable:
        section.world.clean(name)
        return "lost"
    return "visited" if is_released else "lost"


@each_seed(meets=["turns"])
def test_eight_visitors_get_in_one_by_one_in_the_order_in_which_they_came(seed: int) -> None:
    world = ZooKeeperWorld(seed)
    section = CriticalSection(world)
    actors = [world.start(f"v{index}", visitor(section, f"v{index}", work=0.02)) for index in range(8)]
    world.run(check=section.check)
    assert [actor.outcome for actor in actors] == ["visited"] * 8
    assert section.tokens == list(range(1001, 1009))
    assert (world.nodes, world.watches) == ([], [])


@each_seed(meets=["turns", "losses"])
def test_with_lost_replies_everybody_gets_in_with_one_node_each(seed: int) -> None:
    world = ZooKeeperWorld(seed, lost_replies=0.2)
    section = CriticalSection(world)
    actors = [world.start(f"v{index}", visitor(section, f"v{index}", work=0.02)) for index in range(6)]
    world.run(check=section.check)
    assert [actor.outcome for actor in actors] == ["visited"] * 6
    assert section.tokens == list(range(1001, 1007))
    assert world.nodes == []


@each_seed(meets=["turns", "kills", "losses"])
def test_in_all_kinds_of_trouble_nobody_overlaps_nobody_hangs_and_nothing_is_left(seed: int) -> None:
    chance = random.Random(seed)
    world = ZooKeeperWorld(seed, lost_replies=0.05, kills=0.003)
    section = CriticalSection(world)
    actors = [
        world.start(
            f"v{index}",
            visitor(section, f"v{index}", work=0.05, timeout=chance.choice([None, 0, 0.1, 3.0])),
            process=f"p{index // 2}",
        )
        for index in range(8)
    ]
    for number in range(4):
        trouble = SessionFaults(world, f"p{number}")
        after, seconds = chance.random() * 0.4, chance.random() * 0.3
        plan = (
            trouble.session_ends(after=after)
            if number == 3
            else trouble.connection_goes_and_comes(after=after, seconds=seconds)
        )
        world.start(f"trouble {number}", plan)

    def check() -> None:
        for actor in actors:
            if isinstance(actor.outcome, Killed):
                section.inside.pop(actor.name, None)
        section.check()

    world.run(check=check)
    outcomes = {actor.outcome if isinstance(actor.outcome, str) else type(actor.outcome) for actor in actors}
    assert outcomes <= {"visited", "timed out", "failed", "lost", Killed}
    assert section.tokens == sorted(set(section.tokens))
    assert world.nodes == []


@each_seed(meets=["turns"])
def test_a_dead_holder_and_ten_dead_waiters_cost_one_session_time_together(seed: int) -> None:
    world = ZooKeeperWorld(seed)
    section = CriticalSection(world)
    for index in range(11):
        world.start(f"dead {index}", acquire_plan(Claim("door", f"dead {index}", PARENT), 100.0), process="doomed")
    world.start("death", die(world))
    world.start("next", visitor(section, "next", work=0.0))
    world.run(check=section.check)
    assert world.clock.now() < 1_000.0 + 0.1 + 1.0 + 0.1
    assert world.nodes == []


def die(world: ZooKeeperWorld) -> Plan[None]:
    yield from perform(Sleep(0.1))
    world.kill("doomed")  # at this very moment, not at one that the seed draws

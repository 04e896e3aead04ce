"""Plans of locks in the simulator: plain, reentrant, on several servers, GET and SET."""

from collections import Counter
from contextlib import suppress
from itertools import groupby

from segmented.clock import Clock
from segmented.errors import AcquireTimeout, StoreUnavailable
from segmented.locks.handle import acquire_plan
from segmented.locks.lease_state import trusted_until
from segmented.locks.lock import LockClaim
from segmented.locks.other_servers.get_set import get_set_plan, give_back_plan
from segmented.locks.reentrant import ReentrantClaim
from segmented.plans import Now, Plan, perform
from segmented.plans.line import HAND_OFFS_MAX
from segmented.protocol import ReleaseLock
from segmented.protocol.lock import LEFT_MS, NEWCOMERS_MAX
from tests.support.sim.seeds import each_seed
from tests.support.sim.simulator import Killed, Part, Schedule, Simulation, Sleep, keeping_to, killed

TAKING_SECONDS = 1.0
LONGEST_SECONDS = 8 * (NEWCOMERS_MAX + 1) * 0.005
"""For a turn of each of eight processes, with newcomers before it, each of 2 ms and the steps of the simulator."""


class CriticalSection:
    """The protected place: it notes who is inside while trusting the lease, and every token that came in."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.tokens: list[int] = []
        self.overlaps = 0


def visitor(
    section: CriticalSection, name: str, *, ttl_ms: int, work: float, timeout: float | None = None
) -> Plan[str]:
    try:
        acquired, asked_at = yield from acquire_plan(LockClaim("door", name, ttl_ms), timeout)
    except AcquireTimeout:
        return "timed out"
    section.overlaps += bool(section.inside)
    section.inside.add(name)
    section.tokens.append(acquired.fencing_token)
    end = trusted_until(asked_at, ttl_ms)
    now = yield from perform(Now())
    yield from perform(Sleep(min(work, max(end - now, 0.0))))
    section.inside.discard(name)
    yield from perform(ReleaseLock("door", name))
    return "visited"


@each_seed(meets=["turns"])
def test_eight_visitors_are_never_inside_together_and_all_get_in(seed: int) -> None:
    section, world = CriticalSection(), Simulation(seed)
    actors = [world.start(f"v{index}", visitor(section, f"v{index}", ttl_ms=1_000, work=0.02)) for index in range(8)]
    world.run()
    assert [actor.outcome for actor in actors] == ["visited"] * 8
    assert section.overlaps == 0
    assert section.tokens == sorted(set(section.tokens))


@each_seed(meets=["turns", "kills", "losses"])
def test_with_lost_replies_and_deaths_nobody_overlaps_and_nobody_hangs(seed: int) -> None:
    section, world = CriticalSection(), Simulation(seed, lost_replies=0.05, kills=0.01)
    actors = [
        world.start(f"v{index}", visitor(section, f"v{index}", ttl_ms=200, work=0.05), process=f"p{index // 2}")
        for index in range(8)
    ]

    world.run(check=lambda: section.inside.difference_update(killed(actors)))
    assert section.overlaps == 0
    assert all(actor.is_done for actor in actors)
    assert section.tokens == sorted(set(section.tokens))


@each_seed()
def test_a_dead_holder_costs_its_time_to_live_and_no_more(seed: int) -> None:
    section, world = CriticalSection(), Simulation(seed)
    world.start("dead", acquire_plan(LockClaim("door", "dead", 500), None))
    world.run()
    started = world.clock.now()
    world.start("next", visitor(section, "next", ttl_ms=500, work=0.0))
    world.run()
    assert len(section.tokens) == 1
    assert 0.45 < world.clock.now() - started < 0.51


def test_waiters_of_one_process_are_served_in_order_of_arrival() -> None:
    section, world = CriticalSection(), Simulation(7)
    served: list[str] = []

    def arriving(name: str, delay: float) -> Plan[None]:
        yield from perform(Sleep(delay))
        yield from visitor(section, name, ttl_ms=10_000, work=1.0)
        served.append(name)

    for index in range(6):
        world.start(f"v{index}", arriving(f"v{index}", 0.1 * index), process="one")
    world.run()
    assert served == ["v0", "v1", "v2", "v3", "v4", "v5"]


def test_the_deadline_is_kept_while_another_holds() -> None:
    section, world = CriticalSection(), Simulation(3)

    def late() -> Plan[tuple[str, float]]:
        yield from perform(Sleep(0.1))
        started = yield from perform(Now())
        outcome = yield from visitor(section, "late", ttl_ms=100, work=0.0, timeout=1.0)
        return outcome, round((yield from perform(Now())) - started, 1)

    world.start("holder", visitor(section, "holder", ttl_ms=10_000, work=5.0))
    actor = world.start("late", late())
    world.run()
    assert actor.outcome == ("timed out", 1.0)


@each_seed(2, meets=["turns"])
def test_hand_offs_inside_a_process_do_not_pass_the_other_one_over_for_long(seed: int) -> None:
    order: list[str] = []

    def visit(process: str, number: int) -> Plan[None]:
        claim = LockClaim("door", f"{process}{number}", 60_000)
        yield from acquire_plan(claim, None)
        order.append(process)
        yield from perform(Sleep(0.001))
        yield from perform(claim.releasing())

    world = Simulation(seed)
    for number in range(100):
        for process in "ab":
            world.start(f"{process}{number}", visit(process, number), process=process)
    world.run()
    assert (order.count("a"), order.count("b")) == (100, 100)
    while_both_wait = order[: max(order.index("b"), order.index("a")) + 1]
    assert len(while_both_wait) <= 10 * HAND_OFFS_MAX


def taking_turns(turns: list[tuple[str, float]], party: str, *, ttl_ms: int = 60_000) -> Plan[None]:
    """Take the lock again and again for a second, as the only waiter of a process; note the seconds of each wait."""
    number, ends_at = 0, (yield from perform(Now())) + TAKING_SECONDS
    while (began := (yield from perform(Now()))) < ends_at:
        number += 1
        claim = LockClaim("door", f"{party}.{number}", ttl_ms)
        yield from acquire_plan(claim, None)
        turns.append((party, (yield from perform(Now())) - began))
        yield from perform(Sleep(0.002))
        yield from perform(claim.releasing())


@each_seed(3)
def test_a_process_that_retakes_the_lock_at_once_has_at_most_three_turns_in_a_row(seed: int) -> None:
    turns = list[tuple[str, float]]()
    with keeping_to(Schedule(turns=Part(left_out=frozenset(range(100_000))))):  # each plan goes on until it sleeps
        world = Simulation(seed)
    for index in range(8):
        world.start(f"p{index}", taking_turns(turns, f"p{index}"))
    world.run()
    counts = Counter(party for party, _ in turns).values()
    assert (len(counts), max(counts) - min(counts) <= NEWCOMERS_MAX + 1) == (8, True)
    assert max(wait for _, wait in turns) < LONGEST_SECONDS
    rows = [len(list(row)) for _, row in groupby(party for party, _ in turns)]
    assert max(rows[:-1]) == NEWCOMERS_MAX + 1


@each_seed(5, meets=["turns", "kills", "losses"])
def test_a_dead_process_costs_the_others_its_lease_and_the_time_its_turn_is_kept(seed: int) -> None:
    turns, world = list[tuple[str, float]](), Simulation(seed, kills=0.001, lost_replies=0.001)
    for index in range(8):
        world.start(f"p{index}", taking_turns(turns, f"p{index}", ttl_ms=100))
    world.run()
    ended = sum(actor.outcome is not None for actor in world.actors)
    assert max((wait for _, wait in turns), default=0.0) < LONGEST_SECONDS + ended * (0.1 + LEFT_MS / 1000)


NOON = 1_700_000_000.0


class Skewed:
    """A wall clock that is off by some seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def now(self) -> float:
        return NOON + self._clock.now() + self._seconds


class GetSetSection:
    """Notes who is inside."""

    def __init__(self) -> None:
        self.inside = 0
        self.overlaps = 0


def get_set_visitor(
    section: GetSetSection, clock: Clock, *, ttl: float, work: float, timeout: float | None = None
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
    section, world = GetSetSection(), Simulation(seed)
    for index in range(8):
        world.start(
            f"v{index}",
            get_set_visitor(section, Skewed(world.clock, 0), ttl=10, work=0.05),
            process=f"p{index // 2}",
        )
    world.run()
    assert [actor.outcome for actor in world.actors] == ["visited"] * 8
    assert section.overlaps == 0


@each_seed()
def test_with_one_clock_further_ahead_than_the_lease_is_long_two_are_inside_at_once(seed: int) -> None:
    section, world = GetSetSection(), Simulation(seed)

    def late() -> Plan[str]:
        yield from perform(Sleep(0.1))
        return (yield from get_set_visitor(section, Skewed(world.clock, 11), ttl=10, work=1.0))

    world.start("right", get_set_visitor(section, Skewed(world.clock, 0), ttl=10, work=1.0))
    world.start("ahead", late())
    world.run()
    assert section.overlaps == 1


class ReentrantSection:
    """Record the holders that are inside, how deep, and with which tokens."""

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


def reentrant_visitor(section: ReentrantSection, owner: str, *, depth: int = 3, ttl_ms: int = 1_000) -> Plan[str]:
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
    section, world = ReentrantSection(), Simulation(seed)
    actors = [
        world.start(f"o{index}", reentrant_visitor(section, f"o{index}"), process=f"p{index % 2}") for index in range(8)
    ]
    world.run()
    assert [actor.outcome for actor in actors] == ["visited"] * 8
    assert section.overlaps == 0
    tokens = [token for token, _ in section.tokens]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 8
    assert len(set(section.tokens)) == 8  # one token an owner, however often it enters


@each_seed(meets=["turns", "kills", "losses"])
def test_with_lost_replies_and_deaths_no_count_is_doubled_and_nobody_hangs(seed: int) -> None:
    section, world = ReentrantSection(), Simulation(seed, lost_replies=0.03, kills=0.005)
    actors = [
        world.start(f"o{index}", reentrant_visitor(section, f"o{index}", ttl_ms=300), process=f"p{index}")
        for index in range(8)
    ]

    def forget_the_dead() -> None:
        for actor in actors:
            if isinstance(actor.outcome, Killed):
                section.depths[actor.name] = 0

    world.run(check=forget_the_dead)
    assert all(actor.is_done for actor in actors)
    assert section.overlaps == 0
    assert world.clock.now() - 1_000 < 8 * 0.4

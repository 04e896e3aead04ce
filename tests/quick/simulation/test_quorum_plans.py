"""The quorum's steps and the lock's plans, interleaved from seeds: the bodies that production runs."""

from __future__ import annotations

from segmented.errors import AcquireTimeout, LeaseError, StoreError
from segmented.locks.handle import acquire_plan
from segmented.locks.lease_state import trusted_until
from segmented.locks.other_servers.quorum import QuorumClaim
from segmented.models import Renewed
from segmented.plans import Now, Plan, perform
from segmented.protocol import AcquireVote, ReleaseVote
from tests.support.sim.quorum_world import QuorumWorld
from tests.support.sim.seeds import each_seed
from tests.support.sim.simulator import Killed, Sleep

CLEANED_UP = 65.0
"""Seconds after which every duty has ended and every lease has lapsed."""


class CriticalSection:
    """The protected place: it notes who is inside while trusting the lease."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.overlaps = 0
        self.visits = 0

    def enter(self, name: str) -> None:
        self.overlaps += bool(self.inside)
        self.inside.add(name)
        self.visits += 1


def visitor(
    section: CriticalSection, name: str, *, ttl_ms: int, work: float, timeout: float | None = None
) -> Plan[str]:
    claim = QuorumClaim("door", name, ttl_ms)
    try:
        acquired, asked_at = yield from acquire_plan(claim, timeout)
    except AcquireTimeout:
        return "timed out"
    except (LeaseError, StoreError):
        return "failed"
    section.enter(name)
    end = trusted_until(asked_at, acquired.ttl_ms)
    now = yield from perform(Now())
    yield from perform(Sleep(min(work, max(end - now, 0.0))))
    section.inside.discard(name)
    try:
        yield from perform(claim.releasing())
    except StoreError:
        return "visited"
    return "visited"


def renewing_visitor(section: CriticalSection, name: str, *, ttl_ms: int, times: int) -> Plan[str]:
    """Stay inside by renewals, for as long as each of them stands."""
    claim = QuorumClaim("door", name, ttl_ms, reestablish=True)
    try:
        acquired, asked_at = yield from acquire_plan(claim, None)
    except (LeaseError, StoreError):
        return "failed"
    section.enter(name)
    end = trusted_until(asked_at, acquired.ttl_ms)
    for _ in range(times):
        now = yield from perform(Now())
        yield from perform(Sleep(max(min(end - now, ttl_ms / 3_000), 0.0)))
        if (yield from perform(Now())) >= end:
            break
        try:
            asked_at = yield from perform(Now())
            answer = yield from perform(claim.renewing(ttl_ms))
        except StoreError:
            continue
        if not isinstance(answer, Renewed) or (yield from perform(Now())) >= end:
            break
        end = trusted_until(asked_at, ttl_ms)
    section.inside.discard(name)
    try:
        yield from perform(claim.releasing())
    except StoreError:
        return "visited"
    return "visited"


def holders(world: QuorumWorld) -> list[bool]:
    """Tell which servers' votes somebody has."""
    probes = [AcquireVote("door", "probe", 1, round=10**9) for _ in world.models]
    found = [type(model.execute(probe)).__name__ == "HeldBy" for model, probe in zip(world.models, probes, strict=True)]
    for model in world.models:
        model.execute(ReleaseVote("door", "probe"))
    return found


@each_seed(5, meets=["turns"])
def test_six_visitors_from_six_processes_are_never_inside_together_and_all_get_in(seed: int) -> None:
    servers = (3, 5)[seed % 2]
    section, world = CriticalSection(), QuorumWorld(seed, servers=servers)
    actors = [world.start(f"v{index}", visitor(section, f"v{index}", ttl_ms=5_000, work=0.02)) for index in range(6)]
    world.run()
    assert [actor.outcome for actor in actors] == ["visited"] * 6
    assert section.overlaps == 0
    assert world.clock.now() - 1_000 < 5  # nobody had to wait for the end of a lease
    world.settle(1.0)
    assert holders(world) == [False] * servers


@each_seed(5, meets=["turns"])
def test_with_a_server_out_of_reach_in_turn_nobody_overlaps_and_nobody_fails(seed: int) -> None:
    outages = [(0, 0.0, 0.2), (1, 0.2, 0.5), (2, 0.5, 5.0)]
    section, world = CriticalSection(), QuorumWorld(seed, outages=outages)
    actors = [
        world.start(f"v{index}", visitor(section, f"v{index}", ttl_ms=5_000, work=0.03), process=f"p{index // 2}")
        for index in range(8)
    ]
    world.run()
    assert section.overlaps == 0
    assert {actor.outcome for actor in actors} <= {"visited", "failed"}
    assert section.visits >= 7  # one may fail, asking as the outage moves on
    world.settle(CLEANED_UP)
    assert holders(world) == [False] * 3


@each_seed(meets=["turns", "kills", "losses"])
def test_with_lost_late_and_overtaken_requests_and_deaths_nobody_overlaps_or_hangs(seed: int) -> None:
    section, world = CriticalSection(), QuorumWorld(seed, trouble=0.1, kills=0.0005)
    actors = [
        world.start(f"v{index}", visitor(section, f"v{index}", ttl_ms=700, work=0.1), process=f"p{index // 2}")
        for index in range(8)
    ]

    def forget_the_dead() -> None:
        for actor in actors:
            if isinstance(actor.outcome, Killed):
                section.inside.discard(actor.name)

    world.run(check=forget_the_dead)
    assert section.overlaps == 0
    assert all(actor.is_done for actor in actors)


@each_seed(meets=["turns", "losses"])
def test_renewed_leases_never_overlap_in_trouble(seed: int) -> None:
    section, world = CriticalSection(), QuorumWorld(seed, trouble=0.1)
    actors = [
        world.start(f"v{index}", renewing_visitor(section, f"v{index}", ttl_ms=600, times=5)) for index in range(4)
    ]
    world.run()
    assert section.overlaps == 0
    assert all(actor.is_done for actor in actors)


@each_seed(meets=["turns", "losses"])
def test_what_came_late_is_cleaned_up_though_the_leases_would_live_for_hours(seed: int) -> None:
    section, world = CriticalSection(), QuorumWorld(seed, trouble=0.1)
    for index in range(4):
        world.start(f"v{index}", visitor(section, f"v{index}", ttl_ms=3_600_000, work=0.02, timeout=20.0))
    world.run()
    world.settle(CLEANED_UP)
    assert section.overlaps == 0
    assert holders(world) == [False] * 3

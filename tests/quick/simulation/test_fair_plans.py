"""The fair lock's plans, interleaved from seeds: nobody overlaps, nobody hangs, and the living are served in order."""

from __future__ import annotations

from typing import Any

from segmented.errors import AcquireTimeout
from segmented.locks.fair import TIMES, FairClaim
from segmented.locks.handle import acquire_plan
from segmented.locks.lease_state import trusted_until
from segmented.models import Held
from segmented.plans import Now, Plan, perform
from segmented.protocol import AcquireFair, Operation
from segmented.testing import Killed, Simulation, Sleep
from tests.support.sim.seeds import each_seed

CLAIM_SECONDS = TIMES.claim_ms / 1000
BOUND_SECONDS = (TIMES.presence_ms + TIMES.look_ms + TIMES.claim_ms) / 1000


class CriticalSection:
    """The protected place: who is inside while trusting the lease, who came when to the store, and who got in when."""

    def __init__(self, world: Simulation) -> None:
        self.inside: set[str] = set()
        self.tokens: list[int] = []
        self.overlaps = 0
        self.arrived: list[str] = []
        self.served: list[str] = []
        self._execute = world.model.execute
        world.model.execute = self._noted  # type: ignore[method-assign]  # what the store sees first, came first

    def _noted(self, operation: Operation[Any]) -> Any:  # noqa: ANN401  # the operation's own answer
        if isinstance(operation, AcquireFair) and operation.holder_id not in self.arrived:
            self.arrived.append(operation.holder_id)
        return self._execute(operation)

    def out_of_order(self) -> list[str]:
        """Return who was served before somebody who came earlier and was served too."""
        places = [self.arrived.index(name) for name in self.served]
        return [
            name for name, place, best in zip(self.served, places, _running_max(places), strict=True) if place < best
        ]


def _running_max(numbers: list[int]) -> list[int]:
    return [max(numbers[: index + 1]) for index in range(len(numbers))]


def visitor(
    section: CriticalSection,
    name: str,
    *,
    process: str,
    delay: float = 0.0,
    ttl_ms: int = 1_000,
    work: float = 0.02,
    timeout: float | None = None,
) -> Plan[str]:
    claim = FairClaim("door", name, ttl_ms, process=process)
    yield from perform(Sleep(delay))
    try:
        # a patient acquire comes back at the end of the queue after an outage
        acquired, asked_at = yield from acquire_plan(claim, timeout, is_patient=False)
    except AcquireTimeout:
        return "timed out"
    section.overlaps += bool(section.inside)
    section.inside.add(name)
    section.served.append(name)
    section.tokens.append(acquired.fencing_token)
    now = yield from perform(Now())
    yield from perform(Sleep(min(work, max(trusted_until(asked_at, ttl_ms) - now, 0.0))))
    section.inside.discard(name)
    yield from perform(claim.releasing())
    return "visited"


@each_seed(meets=["turns"])
def test_ten_visitors_are_served_in_the_order_of_their_arrival(seed: int) -> None:
    world = Simulation(seed)
    section = CriticalSection(world)
    actors = [
        world.start(f"v{index}", visitor(section, f"v{index}", process=f"p{index % 3}"), process=f"p{index % 3}")
        for index in range(10)
    ]
    world.run()
    assert [actor.outcome for actor in actors] == ["visited"] * 10
    assert section.served == section.arrived
    assert section.overlaps == 0
    assert section.tokens == sorted(set(section.tokens))
    assert world.clock.now() - 1_000 < 10 * 0.02 + 0.2  # nobody waited for anything but those before


@each_seed(meets=["turns", "kills", "losses"])
def test_with_lost_replies_and_deaths_nobody_overlaps_or_hangs_and_order_is_kept(seed: int) -> None:
    world = Simulation(seed, lost_replies=0.03, kills=0.01)
    section = CriticalSection(world)
    actors = [
        world.start(
            f"v{index}",
            visitor(section, f"v{index}", process=f"p{index // 2}", delay=0.01 * (index % 5), ttl_ms=300, work=0.05),
            process=f"p{index // 2}",
        )
        for index in range(12)
    ]

    def forget_the_dead() -> None:
        for actor in actors:
            if isinstance(actor.outcome, Killed):
                section.inside.discard(actor.name)

    world.run(check=forget_the_dead)
    assert section.overlaps == 0
    assert all(actor.is_done for actor in actors)
    assert section.out_of_order() == []
    assert section.tokens == sorted(set(section.tokens))
    assert world.clock.now() - 1_000 < 12 * 0.5 + BOUND_SECONDS


@each_seed(meets=["turns"])
def test_those_whose_time_is_up_leave_the_queue_and_the_others_keep_their_order(seed: int) -> None:
    world = Simulation(seed)
    section = CriticalSection(world)
    patience = [0.03, None, 0.11, None, 0.2, 0.05, None, 0.3]
    actors = [
        world.start(f"v{index}", visitor(section, f"v{index}", process=f"p{index % 2}", work=0.05, timeout=timeout))
        for index, timeout in enumerate(patience)
    ]
    world.run()
    assert {actor.outcome for actor in actors} <= {"visited", "timed out"}
    assert all(actor.outcome == "visited" for actor, timeout in zip(actors, patience, strict=True) if timeout is None)
    assert section.overlaps == 0
    assert section.out_of_order() == []
    assert world.clock.now() - 1_000 < 8 * 0.05 + CLAIM_SECONDS / 2  # no claim was waited for
    assert isinstance(world.model.execute(AcquireFair("door", "next", "p", 1_000, TIMES, waits=False)), Held) is False


@each_seed(meets=["turns"])
def test_fifty_dead_waiters_of_one_process_cost_one_claim(seed: int) -> None:
    world = Simulation(seed)
    section = CriticalSection(world)
    holder = FairClaim("door", "holder", 5_000, process="p0")
    world.start("holder", acquire_plan(holder, None))
    world.run()
    for index in range(50):
        world.model.execute(AcquireFair("door", f"dead{index}", "dead", 1_000, TIMES))
    actor = world.start("living", visitor(section, "living", process="p1", work=0.0))

    def leave() -> Plan[float]:
        yield from perform(Sleep(0.5))
        yield from perform(holder.releasing())
        return (yield from perform(Now()))

    leaving = world.start("leaving", leave())
    world.run()
    assert actor.outcome == "visited"
    assert isinstance(leaving.outcome, float)
    assert CLAIM_SECONDS <= world.clock.now() - leaving.outcome < CLAIM_SECONDS + 0.1

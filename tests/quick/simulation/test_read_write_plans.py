"""Plans of readers, writers, permits and fair locks."""

from functools import partial
from typing import Any

import pytest

from segmented.errors import AcquireTimeout, LockUnreachable, StoreUnavailable
from segmented.locks.claim import Claim
from segmented.locks.fair import TIMES, FairClaim
from segmented.locks.handle import acquire_plan
from segmented.locks.lease_state import trusted_until
from segmented.locks.read_write import ReadClaim, WriteClaim, WriteTry
from segmented.locks.semaphore import PermitClaim
from segmented.models import Held
from segmented.plans import Now, Plan, perform
from segmented.protocol import AcquireFair, Operation
from tests.support.sim.seeds import each_seed
from tests.support.sim.simulator import Actor, Killed, Simulation, Sleep, killed


class Resource:
    """What is read and written: it notes who is at it while trusting the lease, and refuses stale tokens."""

    def __init__(self) -> None:
        self.reading: set[str] = set()
        self.writing: set[str] = set()
        self.read_together = 0
        self.overlaps = 0
        self.newest_written = 0
        self.newest_seen = 0
        self.stale = 0

    def open(self, name: str, token: int, *, is_writer: bool) -> None:
        """Come in. By the tokens a writer is newer than all before it, a reader newer than all writers."""
        if is_writer:
            self.overlaps += bool(self.reading or self.writing)
            self.stale += token <= self.newest_seen
            self.writing.add(name)
            self.newest_written = token
        else:
            self.overlaps += bool(self.writing)
            self.stale += token <= self.newest_written or token < self.newest_seen
            self.reading.add(name)
        self.newest_seen = max(self.newest_seen, token)
        self.read_together = max(self.read_together, len(self.reading))

    def close(self, name: str) -> None:
        """Leave."""
        self.reading.discard(name)
        self.writing.discard(name)

    def forget_the_dead(self, actors: list[Actor]) -> None:
        """Leave for those who died."""
        for actor in actors:
            if isinstance(actor.outcome, Killed):
                self.close(actor.name)


def read(name: str, ttl_ms: int) -> Claim:
    return ReadClaim("resource", name, ttl_ms)


def write(name: str, ttl_ms: int) -> Claim:
    return WriteClaim("resource", name, ttl_ms, presence_ms=min(ttl_ms, 10_000))


def visitor(resource: Resource, claim: Claim, *, work: float, timeout: float | None = None) -> Plan[str]:
    try:
        acquired, asked_at = yield from acquire_plan(claim, timeout)
    except AcquireTimeout:
        return "timed out"
    name = claim.holder_id
    resource.open(name, acquired.fencing_token, is_writer=isinstance(claim, WriteTry))
    end = trusted_until(asked_at, claim.ttl_ms)
    now = yield from perform(Now())
    yield from perform(Sleep(min(work, max(end - now, 0.0))))
    resource.close(name)
    yield from perform(claim.releasing())
    return "visited"


@each_seed(meets=["turns"])
def test_readers_and_writers_get_in_by_wake_ups_alone_and_no_writer_beside_others(seed: int) -> None:
    processes = (1, 3, 10)[seed % 3]
    resource, world = Resource(), Simulation(seed)
    for index in range(10):
        claim = (write if index % 4 == 3 else read)(f"v{index}", 60_000)
        world.start(f"v{index}", visitor(resource, claim, work=0.02), process=f"p{index % processes}")
    began = world.clock.now()
    world.run()
    assert [actor.outcome for actor in world.actors] == ["visited"] * 10
    assert (resource.overlaps, resource.stale) == (0, 0)
    assert world.clock.now() - began < 0.5  # ten of 0.02 s one after another, and no lease or presence waited out


@each_seed(meets=["turns", "kills", "losses"])
def test_with_lost_replies_and_deaths_nobody_overlaps_and_nobody_hangs(seed: int) -> None:
    resource, world = Resource(), Simulation(seed, lost_replies=0.05, kills=0.01)
    for index in range(10):
        claim = (write if index % 3 == 2 else read)(f"v{index}", 200)
        world.start(f"v{index}", visitor(resource, claim, work=0.05), process=f"p{index // 2}")
    world.run(check=partial(resource.forget_the_dead, world.actors))
    assert (resource.overlaps, resource.stale) == (0, 0)
    ends = {type(actor.outcome) for actor in world.actors}
    assert ends <= {str, Killed, LockUnreachable, StoreUnavailable}


@each_seed(meets=["turns"])
def test_readers_who_wait_in_one_process_for_a_writer_all_get_in_at_once(seed: int) -> None:
    resource, world = Resource(), Simulation(seed)

    def late(index: int) -> Plan[str]:
        yield from perform(Sleep(0.01))
        return (yield from visitor(resource, read(f"r{index}", 60_000), work=0.5))

    world.start("writer", visitor(resource, write("w", 60_000), work=0.1))
    for index in range(8):
        world.start(f"r{index}", late(index), process="readers")
    world.run()
    assert resource.read_together == 8
    assert (resource.overlaps, resource.stale) == (0, 0)


@each_seed(meets=["turns"])
def test_a_writer_gets_in_though_readers_keep_coming(seed: int) -> None:
    resource, world = Resource(), Simulation(seed)
    waited: list[float] = []

    def stream(index: int) -> Plan[None]:
        for turn in range(40):
            yield from visitor(resource, read(f"r{index}-{turn}", 60_000), work=0.03)

    def writer() -> Plan[None]:
        yield from perform(Sleep(0.2))
        began = yield from perform(Now())
        yield from visitor(resource, write("w", 60_000), work=0.0)
        waited.append((yield from perform(Now())) - began)

    for index in range(4):
        world.start(f"stream{index}", stream(index))
    world.start("writer", writer())
    world.run()
    assert len(waited) == 1
    assert waited[0] < 0.06  # those who were in, with 0.03 s to go at most, and some requests
    assert (resource.overlaps, resource.stale) == (0, 0)


def let_in_after(world: Simulation, resource: Resource, *, reader_comes: float) -> list[float]:
    """Have one more reader come; the list gets the seconds for which it waited."""
    waited: list[float] = []

    def late() -> Plan[None]:
        yield from perform(Sleep(reader_comes))
        began = yield from perform(Now())
        yield from acquire_plan(read("late", 60_000), None)
        waited.append((yield from perform(Now())) - began)

    world.start("reading", visitor(resource, read("reading", 60_000), work=5.0))
    world.start("late", late())
    return waited


@each_seed(meets=["turns"])
def test_a_writer_that_died_waiting_keeps_readers_out_for_its_presence_and_no_longer(seed: int) -> None:
    resource, world = Resource(), Simulation(seed)
    waited = let_in_after(world, resource, reader_comes=0.1)

    def dying() -> Plan[None]:
        yield from perform(Sleep(0.05))
        yield from perform(write("dying", 400).acquiring())

    world.start("dying", dying())
    world.run()
    assert waited == pytest.approx([0.35], abs=0.01)


@each_seed(meets=["turns"])
def test_a_writer_that_waits_keeps_readers_out_for_longer_than_one_presence(seed: int) -> None:
    resource, world = Resource(), Simulation(seed)
    waited = let_in_after(world, resource, reader_comes=0.1)

    def patient() -> Plan[str]:
        yield from perform(Sleep(0.05))
        return (yield from visitor(resource, write("patient", 400), work=0.0, timeout=3.0))

    actor = world.start("patient", patient())
    world.run()
    assert actor.outcome == "timed out"
    assert waited == pytest.approx([2.95], abs=0.01)


@each_seed(meets=["turns"])
def test_d15_a_reader_and_a_writer_behind_a_writer_do_not_wait_for_each_other(seed: int) -> None:
    resource, world = Resource(), Simulation(seed)

    def then(delay: float, claim: Claim) -> Plan[str]:
        yield from perform(Sleep(delay))
        return (yield from visitor(resource, claim, work=0.1))

    began = world.clock.now()
    world.start("w1", visitor(resource, write("w1", 60_000), work=0.5))
    world.start("r", then(0.1, read("r", 60_000)))
    world.start("w2", then(0.2, write("w2", 60_000)))
    world.run()
    assert [actor.outcome for actor in world.actors] == ["visited"] * 3
    assert world.clock.now() - began == pytest.approx(0.7, abs=0.02)
    assert resource.overlaps == 0


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


def permit_visitor(
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
        world.start(name, permit_visitor(section, name, ttl_ms=60_000, work=0.5), process=f"p{index % processes}")
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
        world.start(name, permit_visitor(section, name, ttl_ms=200, work=0.05), process=f"p{index // 3}")
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
        world.start(f"v{index}", permit_visitor(section, f"v{index}", ttl_ms=60_000, work=1.0), process="one")
    world.run()
    assert section.most == PERMITS
    assert world.clock.now() - began == pytest.approx(1.5, abs=0.02)


CLAIM_SECONDS = TIMES.claim_ms / 1000
BOUND_SECONDS = (TIMES.presence_ms + TIMES.look_ms + TIMES.claim_ms) / 1000


class FairSection:
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


def fair_visitor(
    section: FairSection,
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
    section = FairSection(world)
    actors = [
        world.start(f"v{index}", fair_visitor(section, f"v{index}", process=f"p{index % 3}"), process=f"p{index % 3}")
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
    section = FairSection(world)
    actors = [
        world.start(
            f"v{index}",
            fair_visitor(
                section, f"v{index}", process=f"p{index // 2}", delay=0.01 * (index % 5), ttl_ms=300, work=0.05
            ),
            process=f"p{index // 2}",
        )
        for index in range(12)
    ]

    world.run(check=lambda: section.inside.difference_update(killed(actors)))
    assert section.overlaps == 0
    assert all(actor.is_done for actor in actors)
    assert section.out_of_order() == []
    assert section.tokens == sorted(set(section.tokens))
    assert world.clock.now() - 1_000 < 12 * 0.5 + BOUND_SECONDS


@each_seed(meets=["turns"])
def test_those_whose_time_is_up_leave_the_queue_and_the_others_keep_their_order(seed: int) -> None:
    world = Simulation(seed)
    section = FairSection(world)
    patience = [0.03, None, 0.11, None, 0.2, 0.05, None, 0.3]
    actors = [
        world.start(
            f"v{index}",
            fair_visitor(section, f"v{index}", process=f"p{index % 2}", work=0.05, timeout=timeout),
        )
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
    section = FairSection(world)
    holder = FairClaim("door", "holder", 5_000, process="p0")
    world.start("holder", acquire_plan(holder, None))
    world.run()
    for index in range(50):
        world.model.execute(AcquireFair("door", f"dead{index}", "dead", 1_000, TIMES))
    actor = world.start("living", fair_visitor(section, "living", process="p1", work=0.0))

    def leave() -> Plan[float]:
        yield from perform(Sleep(0.5))
        yield from perform(holder.releasing())
        return (yield from perform(Now()))

    leaving = world.start("leaving", leave())
    world.run()
    assert actor.outcome == "visited"
    assert isinstance(leaving.outcome, float)
    assert CLAIM_SECONDS <= world.clock.now() - leaving.outcome < CLAIM_SECONDS + 0.1

"""Readers and writers, interleaved from seeds: the same bodies that `ReadWriteLock` and its twin run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from segmented.errors import AcquireTimeout, LockUnreachable, StoreUnavailable
from segmented.locks.handle import acquire_plan
from segmented.locks.lease_state import trusted_until
from segmented.locks.read_write import ReadClaim, WriteClaim, WriteTry
from segmented.plans import Now, Plan, perform
from segmented.testing import Killed, Simulation, Sleep
from tests.support.sim.seeds import each_seed

if TYPE_CHECKING:
    from segmented.locks.claim import Claim
    from segmented.testing.simulator import Actor


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

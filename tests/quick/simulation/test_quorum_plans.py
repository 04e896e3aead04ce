"""The quorum's steps and the lock's plans, interleaved from seeds: the bodies that production runs.

The world performs the quorum's own steps, with every request to every server an event of its own. Requests take random
times; some are performed long after they failed, some twice as it were (performed, and the reply lost), some never.
Servers are out of reach for a while; they forget nothing. Holders die in the middle.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final

from segmented.errors import AcquireTimeout, LeaseError, SegmentedError, StoreError, StoreUnavailable
from segmented.locks.handle import acquire_plan
from segmented.locks.lease_state import trusted_until
from segmented.locks.other_servers.quorum import QuorumClaim
from segmented.models import Renewed
from segmented.plans import Batch, Now, Plan, Within, perform
from segmented.protocol import AcquireVote, Effect, Operation, ReleaseVote
from segmented.stores.memory import MemoryModel
from segmented.stores.quorum import Heard, errands_of
from segmented.stores.quorum.lane import Errand, RequestQueue
from segmented.stores.quorum.voting import Ask, Await, Membership, NotAsked, Pause, Poll, Rules, Steps, voting
from tests.support.sim.seeds import each_seed
from tests.support.sim.simulator import Actor, Simulation, Sleep, killed

ANSWER_TIMEOUT: Final = 0.05
PATIENCE: Final = 0.2
LATENCY_MAX: Final = 0.004
STRAGGLE_MAX: Final = 1.0
GUESTS: Final = ("lane", "straggler")
"""Actors that are the world's own: nobody waits for their end."""


@dataclass(frozen=True, slots=True)
class AtServer(Effect[list[Any]]):
    """Perform operations on one server."""

    server: int
    operations: tuple[Operation[Any], ...]


@dataclass(frozen=True, slots=True)
class Rest(Effect[None]):
    """Sleep until there is something for a lane to send, or until a local time."""

    until: float


@dataclass(slots=True)
class Process:
    """What one process knows of the quorum."""

    rules: Rules
    membership: Membership
    queues: list[RequestQueue]
    lanes: list[Actor] = field(default_factory=list)
    heard: dict[str, Heard] = field(default_factory=dict)


@dataclass(slots=True)
class QuorumWorld(Simulation):
    """`Simulation` of several servers; `trouble` is the probability that a request goes wrong."""

    servers: int = 3
    trouble: float = 0.0
    outages: Sequence[tuple[int, float, float]] = ()
    """Servers that are out of reach, from and until when, in seconds after the start."""
    models: list[MemoryModel] = field(init=False)
    _processes: dict[str, Process] = field(default_factory=dict)
    _votings: dict[int, Steps[list[Any]]] = field(default_factory=dict)
    _batched: set[int] = field(default_factory=set)
    _awaited: dict[int, Poll] = field(default_factory=dict)
    _resting: set[int] = field(default_factory=set)
    _started: float = 0.0

    def __post_init__(self) -> None:
        """Have servers in place of one."""
        self.models = [MemoryModel(self.clock) for _ in range(self.servers)]
        self.model = self.models[0]
        self._random = random.Random(self.seed)
        self._started = self.clock.now()

    def run(self, *, steps_max: int = 400_000, check: Callable[[], None] | None = None) -> None:
        """Step until every plan but the world's own has ended. Raises RuntimeError when plans hang."""
        while any(not actor.is_done for actor in self.actors if not actor.name.startswith(GUESTS)):
            self._go_on(steps_max, check)

    def settle(self, seconds: float) -> None:
        """Let what is under way come to its end."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            living = [actor for actor in self.actors if not actor.is_done]
            if min((self._wakes_at(actor) for actor in living), default=inf) == inf:
                return
            self._go_on(10**9, None)

    def _go_on(self, steps_max: int, check: Callable[[], None] | None) -> None:
        if self.steps >= steps_max:
            message = f"seed {self.seed}: not done after {steps_max} steps"
            raise RuntimeError(message)
        self.actors[:] = [actor for actor in self.actors if not (actor.is_done and actor.name.startswith(GUESTS))]
        living = [actor for actor in self.actors if not actor.is_done]
        ready = [actor for actor in living if self._wakes_at(actor) <= self.clock.now()]
        if ready:
            self._step(self._chosen(ready))
            if check is not None:
                check()
        else:
            self._jump(living)

    # --- votes ---

    def _perform(self, actor: Actor, effect: Effect[Any]) -> None:
        match effect:
            case AtServer(server, operations):
                actor.reply = self._executed(server, operations)
            case Rest(until):
                actor.asleep_until = until
                self._resting.add(id(actor))
            case Operation():
                self._vote(actor, (effect,), inf)
            case Within(operation, deadline):
                self._vote(actor, (operation,), deadline)
            case Batch(operations, deadline):
                self._batched.add(id(actor))
                self._vote(actor, operations, deadline)
            case _:
                super(QuorumWorld, self)._perform(actor, effect)

    def _vote(self, actor: Actor, operations: tuple[Operation[Any], ...], deadline: float) -> None:
        process = self._process(actor.process)
        self._votings[id(actor)] = voting(process.rules, process.membership, operations, deadline)
        self._vote_on(actor, None)

    def _step(self, actor: Actor) -> None:
        self._resting.discard(id(actor))
        if id(actor) in self._votings:
            self.steps += 1
            actor.asleep_until = -inf
            self._vote_on(actor, self.clock.now())
        else:
            super(QuorumWorld, self)._step(actor)

    def _vote_on(self, actor: Actor, now: float | None) -> None:
        self._awaited.pop(id(actor), None)
        steps = self._votings[id(actor)]
        while True:
            try:
                step = next(steps) if now is None else steps.send(now)
            except StopIteration as stop:
                del self._votings[id(actor)]
                self._answer(actor, stop.value)
                return
            now = self.clock.now()
            if isinstance(step, Ask):
                self._ask(self._process(actor.process), step)
            elif isinstance(step, Pause):
                actor.asleep_until = step.until
                return
            elif isinstance(step, Await):
                actor.asleep_until = step.until
                self._awaited[id(actor)] = step.poll
                step.poll.when_over(partial(self._wake, actor, step.poll), for_all=step.for_all)
                return

    def _wake(self, actor: Actor, poll: Poll) -> None:
        if self._awaited.get(id(actor)) is poll:
            actor.asleep_until = -inf

    def _answer(self, actor: Actor, answers: list[Any]) -> None:
        if id(actor) in self._batched:
            self._batched.discard(id(actor))
            actor.reply = answers
        elif isinstance(answers[0], SegmentedError):
            actor.failure = answers[0]
        else:
            actor.reply = answers[0]

    def kill(self, process: str) -> None:
        for actor in self.actors:
            if actor.process == process:
                self._votings.pop(id(actor), None)
        super(QuorumWorld, self).kill(process)
        self._processes.pop(process, None)

    # --- servers, and the ways to them ---

    def _process(self, name: str) -> Process:
        if name not in self._processes:
            rules = Rules(self.servers, ANSWER_TIMEOUT, self._random.uniform)
            queues = [RequestQueue(ANSWER_TIMEOUT) for _ in range(self.servers)]
            process = Process(rules, Membership([str(server) for server in range(self.servers)]), queues)
            self._processes[name] = process
            for server in range(self.servers):
                plan = self._lane(process, server)
                process.lanes.append(self.start(f"lane {name} {server}", plan, process=name))
        return self._processes[name]

    def _ask(self, process: Process, step: Ask) -> None:
        for server, errands in errands_of(step).items():
            process.queues[server].add(errands)
            lane = process.lanes[server]
            if id(lane) in self._resting:
                lane.asleep_until = -inf

    def _lane(self, process: Process, server: int) -> Plan[None]:
        queue = process.queues[server]
        while True:
            batch, late = queue.take(self.clock.now())
            _tell(server, [(errand, NotAsked()) for errand in late])
            if not batch:
                yield from perform(Rest(queue.next_time()))
                continue
            operations = tuple(errand.operation for errand in batch)
            votes = yield from self._request(server, operations)
            for errand, vote in zip(batch, votes, strict=True):
                queue.settle(errand, vote, self.clock.now())
            _tell(server, list(zip(batch, votes, strict=True)))

    def _request(self, server: int, operations: tuple[Operation[Any], ...]) -> Plan[list[Any]]:
        failures = [StoreUnavailable()] * len(operations)
        yield from perform(Sleep(self._random.uniform(0, LATENCY_MAX)))
        if self._is_out(server):
            return failures
        fate = self._random.choice(("lost", "late", "never")) if self._is_lost(self.trouble) else "fine"
        if fate == "late":
            self.start("straggler", self._straggle(server, operations))
        if fate in {"late", "never"}:
            yield from perform(Sleep(PATIENCE))
            return failures
        votes = yield from perform(AtServer(server, operations))
        yield from perform(Sleep(PATIENCE if fate == "lost" else self._random.uniform(0, LATENCY_MAX)))
        return failures if fate == "lost" else votes

    def _straggle(self, server: int, operations: tuple[Operation[Any], ...]) -> Plan[None]:
        yield from perform(Sleep(self._random.uniform(0, STRAGGLE_MAX)))
        yield from perform(AtServer(server, operations))

    def _is_out(self, server: int) -> bool:
        now = self.clock.now() - self._started
        return any(server == out and begin <= now < end for out, begin, end in self.outages)

    def _executed(self, server: int, operations: tuple[Operation[Any], ...]) -> list[Any]:
        model = self.models[server]
        votes: list[Any] = []
        for operation in operations:
            try:
                votes.append(model.execute(operation))
            except SegmentedError as error:
                votes.append(error)
        for channel in model.take_freed():
            for (name, subscribed), line in list(self._lines.items()):
                if subscribed == channel and name in self._processes:
                    self._heard(self._processes[name], channel).note(line, server, self.clock.now())
        return votes

    def _heard(self, process: Process, channel: str) -> Heard:
        if channel not in process.heard:
            process.heard[channel] = Heard(self.servers, ANSWER_TIMEOUT)
            for server in range(self.servers):
                process.heard[channel].begin(server)
        return process.heard[channel]


def _tell(server: int, votes: Sequence[tuple[Errand, object]]) -> None:
    for errand, vote in votes:
        if errand.poll is not None:
            errand.poll.note(errand.index, server, vote)


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

    world.run(check=lambda: section.inside.difference_update(killed(actors)))
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

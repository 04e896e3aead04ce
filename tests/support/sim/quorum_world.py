"""A world of several servers: the quorum's own steps, with every request to every server an event of its own.

Requests take random times; some are performed long after they failed, some twice as it were (performed, and the reply
lost), some never. Servers are out of reach for a while; they forget nothing. Holders die in the middle.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final

from segmented.errors import SegmentedError, StoreUnavailable
from segmented.plans import Batch, Plan, Within, perform
from segmented.protocol import Effect, Operation
from segmented.stores.memory import MemoryModel
from segmented.stores.quorum.request_queue import Errand, RequestQueue
from segmented.stores.quorum.store import errands_of
from segmented.stores.quorum.tally import NotAsked, Poll
from segmented.stores.quorum.voting import Ask, Await, Membership, Pause, Rules, Steps, voting
from segmented.stores.quorum.wakeups import Heard
from tests.support.sim.simulator import Actor, Simulation, Sleep

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

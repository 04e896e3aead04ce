"""The third driver: many plans interleaved from a seed, with time, lost replies and sudden deaths under its control.

It runs the production plans, and the production scripts in this process. One step performs one effect of one plan,
chosen by the seed; when all plans sleep, time jumps to the next wake-up. The same seed gives the same run.

A `Schedule` lists the parts left out of a run, to find the smallest run that still fails, after Zeller and
Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (IEEE TSE 28, 2002).
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from math import inf, isinf
from typing import Any, Final

from segmented.clock import ManualClock
from segmented.errors import SegmentedError, StoreUnavailable
from segmented.plans import Batch, Join, Leave, Line, Listen, Now, Park, Place, Plan, Try, Within, perform, substituted
from segmented.plans.drivers import attempt_deadline
from segmented.protocol import Effect, Operation
from segmented.protocol.lock import FIRST, TAKEN, TURN
from segmented.stores.memory import MemoryModel

STEP_SECONDS: Final = 0.000_1
"""Duration of one effect."""


@dataclass(slots=True)
class Part:
    """Events of a run, numbered from 0: how many there were, and which are left out."""

    count: int = 0
    left_out: frozenset[int] = frozenset()

    def happens(self) -> bool:
        """Count one more event, and return whether it happens."""
        number, self.count = self.count, self.count + 1
        return number not in self.left_out

    def remaining(self) -> list[int]:
        """Return the numbers of the events that happened."""
        return [number for number in range(self.count) if number not in self.left_out]


@dataclass(slots=True)
class Schedule:
    """The parts of a run that can be left out and, if the run is traced, all its steps."""

    actors: Part = field(default_factory=Part)
    kills: Part = field(default_factory=Part)
    losses: Part = field(default_factory=Part)
    """Operations whose reply is lost after they ran, and other network faults."""
    turns: Part = field(default_factory=Part)
    """Switches to another actor although the current one could continue; without it, the current one does."""
    steps: list[str] | None = None


_current: Final[ContextVar[Schedule | None]] = ContextVar("schedule", default=None)


def current_schedule() -> Schedule:
    """Return the schedule for worlds created now; by default it leaves nothing out."""
    return _current.get() or Schedule()


@contextmanager
def keeping_to(schedule: Schedule) -> Iterator[None]:
    """Make every world that is created in the block follow a schedule, and count in it."""
    token = _current.set(schedule)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass(frozen=True, slots=True)
class Sleep(Effect[None]):
    """Simulated work of some seconds; only the simulator performs it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class IsWaitedFor(Effect[bool]):
    """Whether a first attempt is to be made from a channel's queue; only the simulator performs it."""

    channel: str
    joins_if_heard: bool


def _in_steps(effect: Effect[Any]) -> Plan[Any]:
    """Make a first attempt in single steps, so that other actors come in between."""
    if not isinstance(effect, Try):
        return (yield from perform(effect))
    effect.asked_at = yield from perform(Now())
    if effect.timeout != 0 and (yield from perform(IsWaitedFor(effect.channel, effect.joins_if_heard))):
        return None
    answer = yield from perform(Within(effect.operation, attempt_deadline(effect)))
    return answer, (yield from perform(Now()))


def scattered(
    plan: Plan[Any], chance: random.Random | None = None, before: Callable[[Any], Plan[None]] | None = None
) -> Plan[Any]:
    """Perform each operation of a batch as a step of its own: a batch goes to several servers.

    With `chance` they come in any order; `before` runs before each effect.
    """

    def in_steps(effect: Effect[Any]) -> Plan[Any]:
        if before is not None:
            yield from before(effect)
        if not isinstance(effect, Batch):
            return (yield from perform(effect))
        places = list(range(len(effect.operations)))
        answers: list[Any] = [None] * len(places)
        if chance is not None:
            chance.shuffle(places)
        for place in places:
            try:
                answers[place] = yield from perform(effect.operations[place])
            except SegmentedError as error:
                answers[place] = error
        return answers

    return substituted(plan, in_steps)


class Killed:
    """An outcome: the actor's process died before its plan ended, without cleanup."""


@dataclass(slots=True, eq=False)
class Actor:
    """One running plan. `outcome` is its return value, the exception it ended with, or Killed."""

    name: str
    plan: Plan[Any]
    process: str
    outcome: object = None
    is_done: bool = False
    reply: object = None
    failure: BaseException | None = None
    asleep_until: float = -inf
    parked: Park | None = None


def killed(actors: Iterable[Actor]) -> set[str]:
    """Return the names of those whose process died."""
    return {actor.name for actor in actors if isinstance(actor.outcome, Killed)}


@dataclass(slots=True)
class Simulation:
    """A world of plans on one server.

    `lost_replies` is the probability that an operation runs and its answer is lost (the plan gets StoreUnavailable);
    `kills` is the probability that a plan's whole process dies before its next effect.
    """

    seed: int
    lost_replies: float = 0.0
    kills: float = 0.0
    clock: ManualClock = field(default_factory=ManualClock)
    actors: list[Actor] = field(default_factory=list)
    model: MemoryModel = field(init=False)
    steps: int = 0
    _random: random.Random = field(init=False)
    _lines: dict[tuple[str, str], Line] = field(default_factory=dict)
    """(process, channel) -> the waiters of that process for the channel"""
    _subscribed: set[tuple[str, str]] = field(default_factory=set)
    """(process, channel) of the subscriptions."""
    _schedule: Schedule = field(default_factory=current_schedule)
    _stepped: Actor | None = None
    """The actor of the last step."""
    _line_numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        """Seed the random generator."""
        self.model = MemoryModel(self.clock)
        self._random = random.Random(self.seed)

    def start(self, name: str, plan: Plan[Any], *, process: str | None = None) -> Actor:
        """Add a plan; it begins at the next step. Plans of one process (default: one each) share one waiting line."""
        actor = Actor(name, substituted(plan, _in_steps), process or name)
        self.actors.append(actor)
        if not self.steps and not self._schedule.actors.happens():  # plans started during the run belong to it
            actor.plan.close()
            actor.is_done = True
        return actor

    def run(self, *, steps_max: int = 100_000, check: Callable[[], None] | None = None) -> None:
        """Step until every plan has ended; `check` runs after each step. Raises RuntimeError when plans hang."""
        while living := [actor for actor in self.actors if not actor.is_done]:
            if self.steps >= steps_max:
                names = ", ".join(actor.name for actor in living)
                raise RuntimeError(f"seed {self.seed}: not done after {steps_max} steps: {names}")
            ready = [actor for actor in living if self._wakes_at(actor) <= self.clock.now()]
            if ready:
                self._step(self._chosen(ready))
                if check is not None:
                    check()
            else:
                self._jump(living)

    # --- helpers ---

    def _chosen(self, ready: list[Actor]) -> Actor:
        actor, before = self._random.choice(ready), self._stepped
        if before is not None and actor is not before and before in ready and not self._schedule.turns.happens():
            actor = before
        self._stepped = actor
        return actor

    def _is_lost(self, probability: float) -> bool:
        return self._random.random() < probability and self._schedule.losses.happens()

    def _wakes_at(self, actor: Actor) -> float:
        if actor.parked is None:
            return actor.asleep_until
        park = actor.parked
        step = park.place.line.next_step(park.place, self.clock.now(), park.deadline)
        if isinstance(step, bool):
            actor.parked, actor.reply = None, step
            return -inf
        return step

    def _jump(self, living: list[Actor]) -> None:
        wakes_at = min(self._wakes_at(actor) for actor in living)
        if isinf(wakes_at) and wakes_at > 0:
            names = ", ".join(actor.name for actor in living)
            raise RuntimeError(f"seed {self.seed}: every actor waits forever: {names}")
        self.clock.advance(max(wakes_at - self.clock.now(), 0.0))

    def _step(self, actor: Actor) -> None:
        self.steps += 1
        self.clock.advance(STEP_SECONDS)
        if self._random.random() < self.kills and self._schedule.kills.happens():
            self._note(actor, "killed")
            self.kill(actor.process)
            return
        try:
            if actor.failure is not None:
                failure, actor.failure = actor.failure, None
                effect = actor.plan.throw(failure)
            else:
                reply, actor.reply = actor.reply, None
                effect = actor.plan.send(reply)
        except StopIteration as stop:
            self._end(actor, stop.value)
        except Exception as error:  # noqa: BLE001  # any error that ends a plan is its outcome
            self._end(actor, error)
        else:
            self._perform(actor, effect)

    def _end(self, actor: Actor, outcome: object) -> None:
        actor.is_done, actor.outcome = True, outcome

    def kill(self, process: str) -> None:
        """End all actors of a process in the middle of what they do."""
        for actor in self.actors:
            if actor.process == process and not actor.is_done:
                actor.plan.close()
                self._end(actor, Killed())
        for key in [key for key in self._lines if key[0] == process]:
            del self._lines[key]
        self._subscribed = {key for key in self._subscribed if key[0] != process}

    def _note(self, actor: Actor, what: object) -> None:
        if self._schedule.steps is not None:
            self._schedule.steps.append(f"{self.clock.now():.4f} {actor.name}: {what}")

    def _perform(self, actor: Actor, effect: Effect[Any]) -> None:
        self._note(actor, effect)
        match effect:
            case Operation():
                self._execute(actor, effect)
            case Within(operation, _):
                self._execute(actor, operation)
            case Batch(operations, _):
                self._execute_all(actor, operations)
            case Now():
                actor.reply = self.clock.now()
            case Sleep(seconds):
                actor.asleep_until = self.clock.now() + seconds
            case _:
                self._move_in_line(actor, effect)

    def _move_in_line(self, actor: Actor, effect: Effect[Any]) -> None:
        match effect:
            case IsWaitedFor(channel, joins_if_heard):
                is_heard = joins_if_heard and (actor.process, channel) in self._subscribed
                actor.reply = is_heard or bool(len(self._line(actor.process, channel)))
            case Join(channel):
                place = self._line(actor.process, channel).join(lambda: None)
                place.is_heard = (actor.process, channel) in self._subscribed
                actor.reply = place
            case Listen(channel, _):
                self._subscribed.add((actor.process, channel))
            case Park(place, due, _, offer):
                place.line.park(place, due, offer)
                actor.parked = effect
            case Leave(place, due, in_time):
                actor.reply = self._leave(actor.process, place, due, in_time=in_time)
            case _:
                actor.failure = TypeError(f"no driver performs {effect!r}")

    def _line(self, process: str, channel: str) -> Line:
        return self._lines.setdefault((process, channel), Line(channel, f"{process}-{next(self._line_numbers)}"))

    def _leave(self, process: str, place: Place, due: float, *, in_time: bool) -> bool:
        line = place.line
        is_over = line.leave(place, due, in_time=in_time)
        if not len(line) and self._lines.get((process, line.channel)) is line:
            del self._lines[process, line.channel]
        return is_over

    def _hand_over(self, process: str, channel: str) -> bool:
        """Make the next local waiter's attempt in the same step, as a store does in the same round trip."""
        line = self._line(process, channel)
        if line.lets_others(self.clock.now()):
            return False
        place = line.take_offer()
        if place is None or place.offer is None:
            return False
        handed: tuple[object, float] | None = None
        with suppress(SegmentedError):  # the waiter gets the error itself
            handed = self.model.execute(place.offer.attempt), self.clock.now()
        if self._is_lost(self.lost_replies):
            handed = None
        line.hand(place, handed)
        return True

    def _execute_all(self, actor: Actor, operations: tuple[Operation[Any], ...]) -> None:
        answers: list[object] = []
        for operation in operations:
            self._execute(actor, operation)
            answers.append(actor.reply if actor.failure is None else actor.failure)
            actor.failure = None
        actor.reply = answers

    def _execute(self, actor: Actor, operation: Operation[Any]) -> None:
        try:
            actor.reply = self.model.execute(operation)
        except Exception as error:  # noqa: BLE001  # the plan handles it
            actor.failure = error
        while freed := self.model.take_freed():  # an attempt that was made for a waiter may send another message
            for channel in freed:
                said = getattr(channel, "said", "")
                handed = not said.startswith((TURN, FIRST, TAKEN)) and self._hand_over(actor.process, channel)
                for (process, subscribed), line in list(self._lines.items()):
                    if subscribed == channel and not (handed and process == actor.process):
                        line.hear(self.clock.now(), said)  # one message per process wakes one of its waiters
        if actor.failure is None and self._is_lost(self.lost_replies):
            self._note(actor, "the reply was lost")
            actor.reply, actor.failure = None, StoreUnavailable("the reply was lost")

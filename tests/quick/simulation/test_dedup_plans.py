"""Messages published, delivered twice, retried, cancelled, and processes that die: interleaved from seeds.

The broker delivers at least once: a copy is delivered again when the process that took it has died, and now and then
for no reason. An effect goes with the finish of a run, as of a `StoreEffect`: it is done where a finish is accepted.
"""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from segmented import protocol as op
from segmented.errors import StoreUnavailable
from segmented.models.dedup import (
    KeyClaimed,
    KeyHeld,
    MessageCancelled,
    MessageEarly,
    OutcomeKept,
    RecordName,
    RunBegun,
    RunFinished,
)
from segmented.plans import Now, Plan, perform
from segmented.protocol import Operation
from tests.support.contract.dedup.dedup_desk import POINTS, Point
from tests.support.sim.seeds import each_seed
from tests.support.sim.simulator import Killed, Simulation, Sleep

KEYS: Final = ("k1", "k2")
MESSAGES: Final = 8
TTL_MS: Final = 200
WAIT_MS: Final = 3_000
REMEMBER_MS: Final = 10**9
ATTEMPTS_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class Copy:
    """What a broker delivers."""

    key: str
    message: str
    attempt: int = 0
    round: int = 0
    follows: str = ""
    due: float = 0.0


@dataclass(slots=True)
class Factory:
    """The broker, what became of each message, and the world in which all this happens."""

    world: Simulation
    point: Point
    keep_ms: int
    queue: list[Copy] = field(default_factory=list)
    taken: list[tuple[str, Copy]] = field(default_factory=list)
    published: set[str] = field(default_factory=set)
    ended: dict[str, str] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    inside: dict[str, tuple[str, float]] = field(default_factory=dict)
    holders: int = 0
    is_calm: bool = False
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Count an effect wherever the store accepts a finish, also when nobody learns of it."""
        self.chance = random.Random(self.world.seed)
        execute = self.world.model.execute

        def counted(operation: Operation[Any]) -> Any:  # noqa: ANN401  # as what it wraps
            answer = execute(operation)
            if isinstance(operation, op.FinishRun) and answer == RunFinished(replay=False):
                self.effects[operation.message] += 1
            return answer

        self.world.model.execute = counted  # type: ignore[method-assign]  # to see what plans are not told

    # --- the broker ---

    def send(self, copy: Copy) -> None:
        self.published.add(copy.message)
        self.queue.append(copy)

    def take(self, who: str) -> Copy | None:
        """Deliver a copy that is due, one in ten twice."""
        due = [copy for copy in self.queue if copy.due <= self.world.clock.now()]
        if not due:
            return None
        copy = self.chance.choice(due)
        if self.is_calm or self.chance.random() > 0.1:
            self.queue.remove(copy)
        self.taken.append((who, copy))
        return copy

    def redeliver(self) -> None:
        """Put back what the dead had taken."""
        dead = {actor.name for actor in self.world.actors if isinstance(actor.outcome, Killed)}
        for who, copy in list(self.taken):
            if who in dead:
                self.taken.remove((who, copy))
                self.queue.append(copy)

    # --- processes ---

    def insist(self, operation: Operation[Any]) -> Plan[Any]:
        """Ask until there is a reply."""
        while True:
            try:
                return (yield from perform(operation))
            except StoreUnavailable:
                yield from perform(Sleep(0.001))

    def record(self, key: str) -> RecordName:
        return RecordName("app", key)

    def publish(self, key: str, message: str, kind: str) -> Plan[str]:
        yield from perform(Sleep(self.chance.random() * 0.3))
        if kind == "foreign":
            self.send(Copy(key, message))
            return "sent"
        times = (WAIT_MS, REMEMBER_MS, 0, 0, 500, self.point.is_blocked_by_run)
        claim = op.ClaimKey(self.record(key), message, "", "task", *times)
        if self.point.seat_end == "start":
            claim = replace(claim, delay_ms=self.chance.choice([0, 100]), delay_max_ms=300, call_text=message)
        answer = yield from self.insist(claim)
        match answer:
            case KeyClaimed():
                self.send(Copy(key, message))
            case KeyHeld(first, attempt=attempt, resend=resend):
                if resend:
                    self.send(Copy(key, first, attempt))
                if kind == "follower":
                    self.send(Copy(key, message, follows=first))
            case OutcomeKept():
                return "answered"
        if kind == "cancelled":
            yield from perform(Sleep(self.chance.random() * 0.1))
            yield from self.insist(op.CancelMessage(self.record(key), message, REMEMBER_MS, self.point.run_on))
        return "published"

    def work(self, name: str) -> Plan[str]:
        while True:
            self.redeliver()
            copy = self.take(name)
            if copy is None:
                if not self.queue and not self.taken and self.is_calm:
                    return "no more"
                yield from perform(Sleep(0.05))
                if not self.is_calm and self.chance.random() < 0.02:
                    return "went home"
                continue
            yield from self.handle(copy)
            self.taken.remove((name, copy))

    def handle(self, copy: Copy) -> Plan[None]:
        self.holders += 1
        holder = f"h{self.holders}"
        begin = op.BeginRun(
            self.record(copy.key),
            copy.message,
            holder,
            "",
            "task",
            TTL_MS,
            REMEMBER_MS,
            self.point.seat_end,
            self.point.run_on,
            attempt=copy.attempt,
            follows=copy.follows,
            round=copy.round,
            at_once=0 if self.point.run_on == "key" else 2,
        )
        asked_at = yield from perform(Now())
        answer = yield from self.insist(begin)
        match answer:
            case RunBegun():
                yield from self.run(copy, holder, answer, asked_at)
            case KeyHeld(goes_round=True):
                self.send(replace(copy, round=answer.next_round, due=self.world.clock.now() + 0.15))
            case OutcomeKept(message):
                self.ended[copy.message] = "done" if message == copy.message else "duplicate"
            case MessageEarly(due_in_ms):
                self.send(replace(copy, due=self.world.clock.now() + due_in_ms / 1000))
            case MessageCancelled():
                self.ended[copy.message] = "cancelled"

    def run(self, copy: Copy, holder: str, begun: RunBegun, asked_at: float) -> Plan[None]:
        record, message, run_on = self.record(copy.key), copy.message, self.point.run_on
        until = asked_at + begun.ttl_ms / 1000
        self.enter(copy, holder, until, asked_at)
        yield from perform(Sleep(self.chance.choice([0.01, 0.1, 0.15, 0.5])))
        if self.chance.random() < 0.5:
            yield from self.insist(op.RenewRun(record, message, holder, TTL_MS, REMEMBER_MS, run_on))
        self.leave(copy)  # what follows may be done in the store long before it is known here
        if copy.attempt < ATTEMPTS_MAX and self.chance.random() < 0.3:
            self.send(replace(copy, attempt=copy.attempt + 1, round=0, due=self.world.clock.now() + 0.05))
            who = (record, message, holder, REMEMBER_MS, self.point.seat_end, run_on)
            yield from self.insist(op.AbandonRun(*who, copy.attempt + 1, WAIT_MS, 50))
            return
        who_finishes = (record, message, holder, begun.fencing_token)
        times = (self.keep_ms, REMEMBER_MS, run_on)
        answer = yield from self.insist(op.FinishRun(*who_finishes, "value", "1", *times))
        if isinstance(answer, RunFinished):
            self.ended[message] = "done"
        else:
            self.send(copy)  # overtaken, perhaps by another message: then nobody else has this one

    # --- what is checked on the way ---

    def enter(self, copy: Copy, holder: str, until: float, asked_at: float) -> None:
        """Note a run for as long as it trusts its first lease; another one must not overlap with it."""
        place = copy.key if self.point.run_on == "key" else copy.message
        other, its_end = self.inside.get(place, ("", 0.0))
        is_retry = other.rpartition(" ")[0] == copy.message and int(other.rpartition(" ")[2]) < copy.attempt
        if not is_retry:
            assert its_end <= asked_at + 0.01, f"{holder} runs {copy} while {other} does"
        self.inside[place] = f"{copy.message} {copy.attempt}", until

    def leave(self, copy: Copy) -> None:
        place = copy.key if self.point.run_on == "key" else copy.message
        if self.inside.get(place, ("", 0.0))[0] == f"{copy.message} {copy.attempt}":
            del self.inside[place]

    def check(self) -> None:
        assert all(count == 1 for count in self.effects.values()), self.effects
        for actor in self.world.actors:
            if isinstance(actor.outcome, Exception):
                raise actor.outcome


def factory_of(seed: int, point: str, *, keep_ms: int, lost_replies: float, kills: float) -> Factory:
    """Let messages be published and worked on among deaths, and then let others work on what is left."""
    world = Simulation(seed, lost_replies=lost_replies, kills=kills)
    made = Factory(world, POINTS[point], keep_ms)
    kinds = ["plain", "plain", "foreign", "follower", "cancelled"]
    for index in range(MESSAGES):
        kind = made.chance.choice(kinds)
        world.start(f"p{index}", made.publish(made.chance.choice(KEYS), f"m{index}", kind))
    for index in range(4):
        world.start(f"w{index}", made.work(f"w{index}"))
    world.run(check=made.check)
    world.kills, world.lost_replies, made.is_calm = 0.0, 0.0, True
    for index in range(2):
        world.start(f"late{index}", made.work(f"late{index}"))
    world.run(check=made.check)
    return made


@pytest.mark.parametrize("point", POINTS)
@each_seed(meets=["turns", "kills", "losses"])
def test_no_message_is_lost_none_has_two_effects_and_nothing_stays_stuck(seed: int, point: str) -> None:
    made = factory_of(seed, point, keep_ms=(0, 500)[seed % 2], lost_replies=0.05, kills=0.01)
    unended = made.published - made.ended.keys()
    assert not unended, f"lost: {unended}"
    for message, end in made.ended.items():
        assert made.effects[message] == (end == "done"), (message, end)
    made.world.clock.advance(WAIT_MS / 1000)
    for key in KEYS:
        times = (WAIT_MS, REMEMBER_MS, 0, 0, 0, made.point.is_blocked_by_run)
        assert made.world.model.execute(op.ClaimKey(made.record(key), "new", "", "task", *times)) == KeyClaimed(
            replay=False
        )


@each_seed(meets=["turns"])
def test_without_deaths_the_copies_of_a_message_that_waits_become_one(seed: int) -> None:
    world = Simulation(seed)
    made = Factory(world, POINTS["unique"], 0)
    world.model.execute(op.BeginRun(made.record("k1"), "long", "h", "", "task", 2_000, REMEMBER_MS))
    for _ in range(5):
        made.send(Copy("k1", "m"))
    made.is_calm = True
    most: list[tuple[float, int]] = []
    for index in range(3):
        world.start(f"w{index}", made.work(f"w{index}"))
    world.run(check=lambda: most.append((world.clock.now(), len(made.queue) + len(made.taken))))
    began = most[0][0]
    assert max(count for at, count in most if at < began + 0.1) == 5
    assert {count for at, count in most if began + 1.0 < at < began + 1.9} == {1}
    assert made.effects["m"] == 1

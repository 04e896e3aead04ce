"""No wake-up is lost: whenever something is free and someone waits, someone is awake or about to be.

Waiters follow `plans.waiting`, cut into its single steps, so that messages, deaths, deadlines and newcomers fall
between any two of them.
"""

from copy import deepcopy
from dataclasses import dataclass
from math import inf

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from segmented.plans.line import Line, Place

AT_ONCE = 0.0
CHOICE = st.integers(min_value=0, max_value=1_000)


@dataclass(eq=False)
class Waiter:
    place: Place
    step: str
    """trying: a request is on its way; answered: the reply is; listening: it subscribes; parked."""
    has_listened: bool = False
    has_taken: bool = False
    due: float = inf


class WaitingLine(RuleBasedStateMachine):
    """One resource that other processes want too, and this process's line for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 10.0
        self.held_until = 0.0
        self.line = Line("freed")
        self.waiters: list[Waiter] = []

    def is_free(self) -> bool:
        return self.now >= self.held_until

    def pick(self, choice: int, *steps: str) -> Waiter | None:
        found = [waiter for waiter in self.waiters if waiter.step in steps]
        return found[choice % len(found)] if found else None

    def is_awake(self, waiter: Waiter) -> bool:
        if waiter.step == "trying" or (waiter.step == "listening" and not waiter.place.is_behind):
            return True
        line, place = deepcopy((self.line, waiter.place))  # `next_step` would wake it
        if waiter.step == "answered":  # what it will find when it parks
            line.park(place, waiter.due)
        return line.next_step(place, self.now, inf) is True

    def holds(self, waiter: Waiter) -> bool:
        """Has it taken the resource, while the reply that says so is still on its way?"""
        return waiter.step == "answered" and waiter.has_taken and self.held_until == waiter.due

    def release(self) -> None:
        """Free the resource; the message wakes one at most."""
        self.held_until = self.now
        before = sum(waiter.place.woken for waiter in self.waiters)
        self.line.signal()
        assert sum(waiter.place.woken for waiter in self.waiters) <= before + 1

    def leave(self, waiter: Waiter, due: float) -> None:
        self.waiters.remove(waiter)
        self.line.leave(waiter.place, due)
        if not len(self.line):
            self.line = Line("freed")

    @initialize(parked=st.integers(min_value=0, max_value=3))
    def some_wait_already(self, parked: int) -> None:
        self.held_until = self.now + 50.0
        for _ in range(parked):
            place = self.line.join(lambda: None)
            due = inf if place.is_behind else self.held_until
            self.line.park(place, due)
            self.waiters.append(Waiter(place, "parked", has_listened=True, due=due))

    @rule()
    def someone_comes(self) -> None:
        place = self.line.join(lambda: None)
        self.waiters.append(Waiter(place, "listening" if place.is_behind else "trying"))

    @rule(choice=CHOICE, ttl=st.sampled_from([1.0, 5.0, 50.0]))
    def a_request_is_decided(self, choice: int, ttl: float) -> None:
        waiter = self.pick(choice, "trying")
        if waiter is None:
            return
        waiter.has_taken = self.is_free()
        if waiter.has_taken:
            self.held_until = self.now + ttl
        waiter.due = self.held_until
        waiter.step = "answered"

    @rule(choice=CHOICE)
    def a_reply_arrives(self, choice: int) -> None:
        waiter = self.pick(choice, "answered")
        if waiter is None:
            return
        if waiter.has_taken:
            self.leave(waiter, waiter.due)
        elif waiter.has_listened:
            self.line.park(waiter.place, waiter.due)
            waiter.step = "parked"
        else:
            waiter.step = "listening"

    @rule(choice=CHOICE)
    def a_subscription_is_confirmed(self, choice: int) -> None:
        waiter = self.pick(choice, "listening")
        if waiter is None:
            return
        waiter.has_listened = True
        if waiter.place.is_behind:
            self.line.park(waiter.place, inf)
            waiter.step = "parked"
        else:
            waiter.step = "trying"

    @rule(choice=CHOICE, is_over=st.booleans())
    def a_sleeper_looks(self, choice: int, *, is_over: bool) -> None:
        waiter = self.pick(choice, "parked")
        if waiter is None:
            return
        step = self.line.next_step(waiter.place, self.now, self.now if is_over else inf)
        if step is True:
            waiter.step = "trying"
        elif step is False:
            self.leave(waiter, waiter.due)

    @rule(choice=CHOICE)
    def someone_is_cancelled(self, choice: int) -> None:
        waiter = self.pick(choice, "trying", "listening", "parked")
        if waiter is not None:
            self.leave(waiter, AT_ONCE)

    @rule(choice=CHOICE)
    def someone_is_cancelled_who_had_taken_it(self, choice: int) -> None:
        waiter = self.pick(choice, "answered")
        if waiter is not None and self.holds(waiter):
            self.leave(waiter, AT_ONCE)
            self.release()

    @precondition(lambda self: not self.is_free() and not any(map(self.holds, self.waiters)))
    @rule()
    def the_holder_releases(self) -> None:
        self.release()

    @precondition(lambda self: self.is_free())
    @rule(ttl=st.sampled_from([1.0, 5.0, 50.0]))
    def another_process_takes_it(self, ttl: float) -> None:
        self.held_until = self.now + ttl

    @rule(seconds=st.sampled_from([0.5, 1.0, 10.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nobody_sleeps_beside_what_is_free(self) -> None:
        if self.is_free() and self.waiters:
            assert any(map(self.is_awake, self.waiters))

    @invariant()
    def the_line_counts_those_who_wait(self) -> None:
        assert len(self.line) == len(self.waiters)


TestWaitingLine = WaitingLine.TestCase
TestWaitingLine.settings = settings(max_examples=150, stateful_step_count=30)

"""The plan of `MultiLock` step by step, in a world of scripted answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import AcquireTimeout, LeaseLost, StoreUnavailable, WrongKind
from segmented.locks.lock import LockClaim
from segmented.locks.multi import multi_plan
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.plans import Batch, Join, Leave, Line, Listen, Now, Park, Plan, Try, Within

TTL_MS = 3_000
CLAIMS = [LockClaim(name, "h", TTL_MS) for name in "abc"]
FREED = Held(60_000)


class World:
    """Answers what is asked, and notes it. `answers` are asked first; each takes `seconds` of an operation to run."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked: list[str] = []
        self.batches: list[str] = []
        self.held: set[str] = set()
        self.refuse: Callable[[Any], object] = lambda _: None
        """An answer or failure for an operation, instead of the usual one."""
        self.sleep: Callable[[Park], bool] = self.sleep_through
        self._line = Line("freed")

    def run(self, plan: Plan[Any]) -> Any:  # noqa: ANN401  # the plan's outcome
        reply: object = None
        failure: BaseException | None = None
        while True:
            try:
                effect = plan.send(reply) if failure is None else plan.throw(failure)
            except StopIteration as stop:
                return stop.value
            reply, failure = None, None
            try:
                reply = self.perform(effect)
            except BaseException as error:  # noqa: BLE001  # it is the plan's
                failure = error

    def perform(self, effect: Any) -> object:  # noqa: ANN401  # any effect
        match effect:
            case Now():
                return self.now
            case Batch(operations):
                self.batches.append(" ".join(told(one) for one in operations))
                return [self.answer(one, is_alone=False) for one in operations]
            case Within(operation):
                return self.answer(operation)
            case Try(operation):
                effect.asked_at = self.now
                return None if len(self._line) else (self.answer(operation), self.now)
            case Join():
                return self._line.join(lambda: None)
            case Listen():
                return None
            case Leave(place, due):
                place.line.leave(place, due)
                return None
            case Park():
                return self.sleep(effect)
        raise TypeError(effect)

    def answer(self, operation: Any, *, is_alone: bool = True) -> object:  # noqa: ANN401  # any operation
        self.asked.append(told(operation))
        refusal = self.refuse(operation)
        if isinstance(refusal, BaseException):
            if is_alone or not isinstance(refusal, StoreUnavailable | WrongKind):
                raise refusal
            return refusal
        if refusal is not None:
            return refusal
        match operation:
            case op.AcquireLock():
                return FREED if operation.name in self.held else Acquired(7, TTL_MS, replay=False)
            case op.RenewLock():
                return Renewed(TTL_MS)
        return Released()

    def sleep_through(self, park: Park) -> bool:
        self.now = park.deadline
        return False


def told(operation: Any) -> str:  # noqa: ANN401  # an operation on one name
    return f"{type(operation).__name__.removesuffix('Lock').lower()} {operation.name}"


def test_a_single_try_gives_back_only_what_it_got_and_names_what_was_held() -> None:
    world = World()
    world.held = {"b"}
    with pytest.raises(AcquireTimeout, match=r"^lock 'b' was not free within 0 s$"):
        world.run(multi_plan(CLAIMS, 0))
    assert world.batches == ["acquire a acquire b acquire c", "release a release c"]


def test_units_that_may_be_taken_without_an_answer_go_back_and_the_failure_is_raised() -> None:
    world = World()
    world.held = {"a"}
    world.refuse = lambda asked: StoreUnavailable() if told(asked) == "acquire b" else None
    with pytest.raises(StoreUnavailable):
        world.run(multi_plan(CLAIMS, 10.0))
    assert world.batches[1] == "release b release c"


def test_an_answer_that_took_longer_than_the_lease_is_a_loss_and_all_is_given_back() -> None:
    world = World()

    def slow(asked: object) -> None:
        world.now += 1.0 if isinstance(asked, op.AcquireLock) else 0.0

    world.refuse = slow
    with pytest.raises(LeaseLost):
        world.run(multi_plan(CLAIMS, 10.0))
    assert world.batches[1:] == ["release a release b release c"]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), StoreUnavailable()])
def test_a_wait_that_is_interrupted_gives_back_what_it_held(error: BaseException) -> None:
    world = World()
    world.held = {"c"}

    def fail(_: Park) -> bool:
        raise error

    world.sleep = fail
    with pytest.raises(type(error)):
        world.run(multi_plan(CLAIMS, 10.0))
    assert world.asked[-3:] == ["release c", "release a", "release b"]


def test_what_is_held_is_renewed_every_third_of_its_life_while_the_next_is_awaited() -> None:
    world = World()
    world.held = {"c"}
    with pytest.raises(AcquireTimeout):
        world.run(multi_plan(CLAIMS, 10.0))
    assert world.batches.count("renew a renew b") == 9


def test_what_was_acquired_long_ago_is_renewed_before_it_is_handed_out() -> None:
    world = World()
    world.held = {"c"}

    def slow(asked: object) -> None:
        if told(asked) == "acquire b" and len(world.asked) > 4:
            world.held.clear()
            world.now += 1.5

    world.refuse = slow
    found = world.run(multi_plan(CLAIMS, 10.0))
    assert world.batches[-1] == "renew a renew b renew c"
    assert [asked_at for _, asked_at in found] == [101.5] * 3


def test_failed_renewals_are_repeated_soon_until_the_lease_ends_and_all_begins_again() -> None:
    world = World()
    world.held = {"c"}

    def refuse(asked: object) -> object:
        if isinstance(asked, op.RenewLock):
            return StoreUnavailable()
        if told(asked) == "release a" and world.now > 102:
            world.held.clear()
        return None

    world.refuse = refuse
    found = world.run(multi_plan(CLAIMS, 10.0))
    assert world.now == pytest.approx(103.1)  # the first look, every 0.15 s from 101, after the end at 102.968
    assert 10 <= world.batches.count("renew a renew b") <= 15
    assert world.batches[-2:] == ["release a release b", "acquire a acquire b acquire c"]
    assert [asked_at for _, asked_at in found] == pytest.approx([world.now] * 3)


def test_a_name_lost_while_another_is_waited_for_starts_it_over_with_nothing_held() -> None:
    world = World()
    world.held = {"c"}
    world.refuse = lambda asked: Lost() if told(asked) == "renew a" and world.now < 102 else None
    with pytest.raises(AcquireTimeout):
        world.run(multi_plan(CLAIMS, 10.0))
    assert world.batches[2:6] == [
        "renew a renew b",
        "release a release b",
        "acquire a acquire b acquire c",
        "release a release b",
    ]

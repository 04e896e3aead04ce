"""`wait_for` step by step, driven by hand: no driver, no store, no clock."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from segmented import operations as op
from segmented.errors import OrderMismatch, OrderUnknown, StoreRefused, StoreUnavailable
from segmented.models import Acquired, Busy, Held
from segmented.plans import Join, Leave, Line, Listen, Now, Park, wait_for

if TYPE_CHECKING:
    from segmented.plans import Plan

ACQUIRE = op.AcquireLock("x", "h", 1_000)
UNDO = op.ReleaseLock("x", "h")
TAKEN = Acquired(7, ttl_ms=1_000, replay=False)


def waiting(timeout: float | None) -> Plan[tuple[Any, float]]:
    return wait_for(
        ACQUIRE, channel="freed", timeout=timeout, is_busy=lambda answer: isinstance(answer, Held), undo=UNDO
    )


class Hand:
    """Feeds answers to a plan and notes what it asked for."""

    def __init__(self, plan: Plan[Any]) -> None:
        self._plan = plan
        self.asked = next(plan)

    def answer(self, answer: object) -> Any:  # noqa: ANN401  # the next effect
        self.asked = self._plan.send(answer)
        return self.asked

    def fail(self, error: BaseException) -> Any:  # noqa: ANN401  # the next effect
        self.asked = self._plan.throw(error)
        return self.asked

    def end(self, answer: object) -> Any:  # noqa: ANN401  # the plan's outcome
        with pytest.raises(StopIteration) as stop:
            self._plan.send(answer)
        return stop.value.value

    def raises(self, kind: type[BaseException], answer: object = None) -> None:
        with pytest.raises(kind):
            self._plan.send(answer)


def at_first_try(timeout: float | None = 5.0, *, behind: bool = False) -> tuple[Hand, Any]:
    """Bring a plan to its first request (or, behind others, to its subscription)."""
    line = Line("freed")
    if behind:
        line.join(lambda: None)
    place = line.join(lambda: None)
    hand = Hand(waiting(timeout))
    if timeout is not None:
        assert hand.asked == Now()
        assert hand.answer(100.0) == Join("freed")
    if behind:
        assert hand.answer(place) == Listen("freed", inf if timeout is None else 105.0)
    else:
        assert hand.answer(place) == Now()
        assert hand.answer(100.0) == ACQUIRE
    return hand, place


def test_without_a_timeout_there_is_one_try_and_no_line() -> None:
    hand = Hand(waiting(0))
    assert hand.asked == Now()
    assert hand.answer(100.0) == ACQUIRE
    assert hand.end(Held(500)) == (Held(500), 100.0)


def test_a_free_lock_is_taken_at_the_first_try_and_the_next_in_line_learns_how_long_it_lives() -> None:
    hand, place = at_first_try()
    assert hand.answer(TAKEN) == Now()
    assert hand.answer(100.25) == Leave(place, 100.25 + 1.001)
    assert hand.end(None) == (TAKEN, 100.0)


def test_the_second_try_comes_after_the_subscription_is_confirmed() -> None:
    hand, place = at_first_try()
    assert hand.answer(Held(500)) == Now()
    assert hand.answer(100.1) == Listen("freed", 105.0)
    assert hand.answer(None) == Now()
    assert hand.answer(100.2) == ACQUIRE
    assert hand.answer(Held(400)) == Now()
    assert hand.answer(100.3) == Park(place, 100.3 + 0.401, 105.0)


def test_a_woken_waiter_tries_again_and_trusts_its_lease_from_before_that_try() -> None:
    hand, place = at_first_try()
    for answer in (Held(500), 100.1, None, 100.2, Held(400), 100.3):
        hand.answer(answer)
    assert hand.answer(True) == Now()  # noqa: FBT003  # what Park answers
    assert hand.answer(103.0) == ACQUIRE
    assert hand.answer(TAKEN) == Now()
    assert hand.answer(103.5) == Leave(place, 103.5 + 1.001)
    assert hand.end(None) == (TAKEN, 103.0)


def test_at_the_deadline_the_last_answer_is_returned() -> None:
    hand, place = at_first_try()
    for answer in (Held(500), 100.1, None, 100.2, Held(400), 100.3):
        hand.answer(answer)
    assert isinstance(hand.answer(False), Leave)  # noqa: FBT003  # what Park answers
    assert hand.end(None) == (Held(400), 100.2)
    assert place.line.channel == "freed"


def test_who_stands_behind_others_does_not_try_before_it_is_woken() -> None:
    hand, place = at_first_try(behind=True)
    assert hand.answer(None) == Park(place, inf, 105.0)
    assert hand.answer(True) == Now()  # noqa: FBT003  # what Park answers
    assert hand.answer(101.0) == ACQUIRE


def test_who_stands_behind_others_may_reach_its_deadline_without_a_try() -> None:
    hand, _ = at_first_try(behind=True)
    hand.answer(None)
    assert isinstance(hand.answer(False), Leave)  # noqa: FBT003  # what Park answers
    assert hand.end(None) == (None, 0.0)


def test_a_lock_without_an_end_is_waited_for_by_message_alone() -> None:
    hand, place = at_first_try(timeout=None)
    assert hand.answer(Held(None)) == Listen("freed", inf)
    assert hand.answer(None) == Now()
    assert hand.answer(100.0) == ACQUIRE
    assert hand.answer(Held(None)) == Park(place, inf, inf)


def test_an_answer_that_took_nothing_lets_the_next_in_line_try_at_once() -> None:
    for answer in ("sold out", Busy("a", 1, 500, is_in_hand=True)):
        hand, place = at_first_try()
        assert hand.answer(answer) == Leave(place, 0.0)
        assert hand.end(None) == (answer, 100.0)


@pytest.mark.parametrize(
    "error", [StoreUnavailable(), StoreRefused("no"), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_a_wait_that_ends_by_an_error_leaves_the_line_first_and_then_undoes(error: BaseException) -> None:
    hand, place = at_first_try()
    assert hand.fail(error) == Leave(place, 0.0)
    assert hand.answer(None) == UNDO
    hand.raises(type(error))


@pytest.mark.parametrize("failure", [StoreUnavailable(), OrderUnknown("a")])
def test_an_undo_that_fails_does_not_hide_the_error(failure: Exception) -> None:
    hand, _ = at_first_try()
    hand.fail(KeyboardInterrupt())
    hand.answer(None)
    with pytest.raises(KeyboardInterrupt):
        hand.fail(failure)


def test_an_answer_that_is_an_error_took_nothing_and_is_not_undone() -> None:
    hand, place = at_first_try()
    assert hand.fail(OrderMismatch("a")) == Leave(place, 0.0)
    hand.raises(OrderMismatch)


def test_a_single_try_that_ends_by_an_error_is_undone_too() -> None:
    hand = Hand(waiting(0))
    hand.answer(100.0)
    assert hand.fail(StoreUnavailable()) == UNDO
    hand.raises(StoreUnavailable)


@pytest.mark.parametrize("timeout", [0, 5.0])
def test_a_process_that_is_gone_cleans_nothing_up(timeout: float) -> None:
    plan = waiting(timeout)
    next(plan)
    plan.send(100.0)
    plan.close()
    with pytest.raises(StopIteration):
        next(plan)

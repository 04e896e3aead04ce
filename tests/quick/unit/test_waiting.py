"""How a call waits: the tries, the line of waiters, and what an error or a deadline leaves behind."""

import asyncio
from functools import partial
from math import inf
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import StoreRefused, StoreUnavailable
from segmented.locks.handle import Found, acquire_plan
from segmented.locks.reentrant import ReentrantClaim
from segmented.models import Acquired, Held
from segmented.plans import Join, Leave, Line, Listen, Now, Offer, Park, Plan, Try, Within, wait_for, wait_in_line
from segmented.plans.tasks import Alarm
from segmented.plans.waiting import GONE_SECONDS
from segmented.protocol import AcquireReentrant

ACQUIRE = op.AcquireLock("x", "h", 1_000)
UNDO = op.ReleaseLock("x", "h")
WITHIN = Within(ACQUIRE, 105.0)
TAKEN = Acquired(7, ttl_ms=1_000, replay=False)


def is_held(answer: object) -> bool:
    return isinstance(answer, Held)


def waiting(timeout: float | None) -> Plan[tuple[Any, float]]:
    return wait_for(ACQUIRE, channel="freed", timeout=timeout, is_busy=is_held, undo=lambda: UNDO)


def trying(timeout: float | None) -> Try[Any]:
    """Return a first attempt that was made at 100.0."""
    return Try(ACQUIRE, "freed", timeout, asked_at=100.0)


class PlanDriver:
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


def at_first_try(timeout: float | None = 5.0) -> PlanDriver:
    """Bring a plan to its first request: nobody is in the line."""
    driver = PlanDriver(waiting(timeout))
    assert driver.asked == trying(timeout)
    driver.asked.asked_at = 100.0
    return driver


def in_line(timeout: float | None = 5.0, *, behind: bool = False) -> tuple[PlanDriver, Any]:
    """Bring a plan to its subscription: the first try failed, or others are ahead."""
    line = Line("freed")
    if behind:
        line.join(lambda: None)
        driver = at_first_try(timeout)
        assert driver.answer(None) == Join("freed")
    else:
        driver = at_first_try(timeout)
        assert driver.answer((Held(500), 100.1)) == Join("freed")
    place = line.join(lambda: None)
    assert driver.answer(place) == Listen("freed", inf if timeout is None else 105.0)
    return driver, place


def test_the_second_try_comes_after_the_subscription_is_confirmed() -> None:
    driver, place = in_line()
    assert driver.answer(None) == Now()
    assert driver.answer(100.2) == WITHIN
    assert driver.answer(Held(400)) == Now()
    assert driver.answer(100.3) == Park(place, 100.3 + 0.401, 105.0)


def test_a_woken_waiter_tries_again_and_trusts_its_lease_from_before_that_try() -> None:
    driver, place = in_line()
    for answer in (None, 100.2, Held(400), 100.3):
        driver.answer(answer)
    assert driver.answer(True) == Now()  # noqa: FBT003  # what Park answers
    assert driver.answer(103.0) == WITHIN
    assert driver.answer(TAKEN) == Now()
    assert driver.answer(103.5) == Leave(place, 103.5 + 1.001)
    assert driver.end(None) == (TAKEN, 103.0)


def test_a_try_just_before_the_deadline_has_a_tenth_of_a_second() -> None:
    driver, _ = in_line()
    for answer in (None, 100.2, Held(400), 100.3, True):
        driver.answer(answer)
    assert driver.answer(104.0 + 0.9375) == Within(ACQUIRE, 104.9375 + 0.1)


@pytest.mark.parametrize("answer", [Held(None), Held(60_000)])
def test_a_lock_without_an_end_or_with_a_late_one_is_looked_at_again_in_12_seconds(answer: Held) -> None:
    driver, place = in_line(timeout=None)
    assert driver.answer(None) == Now()
    assert driver.answer(100.0) == Within(ACQUIRE, inf)
    assert driver.answer(answer) == Now()
    assert driver.answer(100.5) == Park(place, 112.5, inf)


@pytest.mark.parametrize("answer", [Held(None), Held(60_000)])
def test_a_lock_whose_key_may_vanish_is_looked_at_again_in_four_fifths_of_a_second(answer: Held) -> None:
    driver = PlanDriver(wait_in_line(trying(None), is_tried=True, is_busy=is_held, look_seconds=GONE_SECONDS))
    place = Line("freed").join(lambda: None)
    for reply in (place, None, 100.0, answer):
        driver.answer(reply)
    assert driver.answer(100.5) == Park(place, 101.3, inf)


ERRORS = [StoreUnavailable(), StoreRefused("no"), KeyboardInterrupt(), asyncio.CancelledError()]


@pytest.mark.parametrize("error", ERRORS)
def test_a_wait_that_ends_by_an_error_leaves_the_line_first_and_then_undoes(error: BaseException) -> None:
    driver, place = in_line()
    assert driver.fail(error) == Leave(place, 0.0, in_time=False)
    assert driver.answer(None) == Now()
    assert driver.answer(101.0) == Within(UNDO, 105.0)
    driver.raises(type(error))


def in_the_line_of_processes() -> PlanDriver:
    """Bring a plan with a place in the line of processes to its second attempt."""
    line = Line("freed", "us")
    wait = wait_in_line(
        trying(5.0),
        is_tried=True,
        is_busy=is_held,
        in_line=lambda party: op.AcquireLock("x", "h", 1_000, party=party),
        out_of_line=lambda party: op.LeaveLine("x", party),
    )
    driver = PlanDriver(wait)
    for reply in (line.join(lambda: None), None, 100.0):
        driver.answer(reply)
    return driver


@pytest.mark.parametrize("error", [SystemExit(), asyncio.CancelledError(), StoreRefused("no")])
def test_the_last_waiter_of_a_process_that_is_cancelled_takes_it_out_of_the_line(error: BaseException) -> None:
    driver = in_the_line_of_processes()
    assert isinstance(driver.fail(error), Leave)
    assert driver.answer(True) == Now()  # noqa: FBT003  # the reply to Leave
    assert driver.answer(101.0) == Within(op.LeaveLine("x", "us"), 101.25)
    with pytest.raises(type(error)):
        driver.answer(True)  # noqa: FBT003  # the reply of the store


def test_an_undo_after_the_deadline_has_a_quarter_of_a_second() -> None:
    driver, _ = in_line()
    driver.fail(StoreUnavailable())
    driver.answer(None)
    assert driver.answer(110.0) == Within(UNDO, 110.25)


@pytest.mark.parametrize("timeout", [0, 5.0])
def test_a_process_that_is_gone_cleans_nothing_up(timeout: float) -> None:
    plan = waiting(timeout)
    next(plan)
    plan.close()
    with pytest.raises(StopIteration):
        next(plan)


# --- hand-off ---


def parked_with_an_offer(undo_late: tuple[op.Operation[Any], ...]) -> tuple[PlanDriver, Any]:
    """Bring a plan to where it sleeps, its attempt left with its place."""
    offered = partial(Offer, undo=(UNDO,), undo_late=undo_late)
    driver = PlanDriver(wait_in_line(trying(5.0), is_tried=True, is_busy=is_held, offered=offered))  # after the first
    line = Line("freed")
    place = line.join(lambda: None)
    for answer in (place, None, 100.2, Held(400), 100.3):
        driver.answer(answer)
    assert driver.asked == Park(place, 100.3 + 0.401, 105.0, Offer(ACQUIRE, (UNDO,), undo_late))
    return driver, place


def test_a_handed_over_lease_counts_from_before_its_request_and_costs_no_attempt() -> None:
    driver, place = parked_with_an_offer((UNDO,))
    place.handed = (TAKEN, 101.5)
    assert driver.answer(True) == Now()  # noqa: FBT003  # what Park answers
    assert driver.answer(101.6) == Leave(place, 101.6 + 1.001)
    assert driver.end(None) == (TAKEN, 101.5)


CLAIM = ReentrantClaim("door", "h", 1_000, "a")
ENTER = AcquireReentrant("door", "a", "h", 1_000)
AGAIN = Acquired(7, 1_000, replay=False)
WOKEN = True
ENTER_AGAIN = AcquireReentrant("door", "a", "h", 1_000, only_again=True)


def behind_another() -> Plan[Found]:
    """Bring a plan, by the line that it stands in, to its first request."""
    line = Line(CLAIM.channel)
    line.join(lambda: None)
    plan = acquire_plan(CLAIM, 5.0)
    trying = next(plan)
    assert isinstance(trying, Try)
    trying.asked_at = 100.0
    assert plan.send(None) == Join(CLAIM.channel)
    assert plan.send(line.join(lambda: None)) == Now()
    assert plan.send(100.0) == Within(ENTER_AGAIN, 105.0)
    return plan


def test_a_waiter_behind_others_asks_once_whether_its_owner_holds_and_then_waits() -> None:
    plan = behind_another()
    assert plan.send(Held(30_000)) == Now()
    assert plan.send(100.1) == Listen(CLAIM.channel, 105.0)
    assert isinstance(plan.send(None), Park)
    assert plan.send(WOKEN) == Now()
    assert plan.send(101.0) == Within(ENTER, 105.0)


def test_an_owner_that_holds_the_lock_is_in_without_waiting_for_its_turn() -> None:
    plan = behind_another()
    assert plan.send(AGAIN) == Now()
    assert isinstance(plan.send(100.1), Leave)
    assert plan.send(None) == Now()
    with pytest.raises(StopIteration) as stop:
        plan.send(100.1)
    assert stop.value.value == (AGAIN, 100.0)


def test_a_deadline_in_the_clean_up_of_a_cancelled_task_is_a_deadline() -> None:
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with pytest.raises(TimeoutError), Alarm(0.001):
                await asyncio.Event().wait()
            told.append("deadline")

    async def cancelled() -> bool:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(cancelled())
    assert told == ["deadline"]

"""The two drivers: what they perform, and what reaches the plan when something goes wrong."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import pytest

from segmented import protocol as op
from segmented.clock import Clock, ManualClock
from segmented.errors import StoreRefused, StoreUnavailable
from segmented.models import Released
from segmented.plans import Join, Now, Park, Plan, Try, perform, run_async, run_sync
from segmented.plans.tasks import begun
from segmented.protocol import Effect
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups
from tests.support.loops import Leaving, run_a_round, said_of_leaving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.errors import SegmentedError

AnswerT = TypeVar("AnswerT")

ACQUIRE = op.AcquireLock("x", "h", 1_000)
RELEASE = op.ReleaseLock("x", "h")


FREED = "freed"


@dataclass(frozen=True, slots=True)
class Unheard(Effect[None]):
    """An effect that no driver knows."""


class ScriptedStore:
    """Does what it is told to do for each operation, and notes what it was asked."""

    def __init__(self, does: Callable[[op.Operation[Any]], Any]) -> None:
        self.clock: Clock = ManualClock(start=7.0)
        self.wakeups = ThreadWakeups(self.clock)
        self.asked: list[op.Operation[Any]] = []
        self.deadlines: list[float] = []
        self._does = does

    def execute(self, operation: op.Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        self.deadlines.append(deadline)
        self.asked.append(operation)
        answer: AnswerT = self._does(operation)
        return answer

    def execute_many(
        self, operations: Sequence[op.Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        return [self.execute(operation, deadline=deadline) for operation in operations]

    def close(self) -> None:
        """Nothing to give up."""


class AsyncScriptedStore:
    """The same for asyncio; an operation in `gate` goes on when the gate opens."""

    def __init__(self, does: Callable[[op.Operation[Any]], Any]) -> None:
        self.clock: Clock = ManualClock(start=7.0)
        self.wakeups = AsyncioWakeups(self.clock)
        self.asked: list[op.Operation[Any]] = []
        self.deadlines: list[float] = []
        self.begun = asyncio.Event()
        self.ended: list[op.Operation[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._does = does

    async def execute(self, operation: op.Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        self.deadlines.append(deadline)
        self.asked.append(operation)
        self.begun.set()
        await self.gate.wait()
        answer: AnswerT = self._does(operation)
        self.ended.append(operation)
        return answer

    async def execute_many(
        self, operations: Sequence[op.Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        return [await self.execute(operation, deadline=deadline) for operation in operations]

    async def close(self) -> None:
        """Nothing to give up."""


def fails(error: BaseException) -> Callable[[op.Operation[Any]], Any]:
    """Fail to acquire; release well."""

    def does(operation: op.Operation[Any]) -> Any:  # noqa: ANN401  # any operation's answer
        if operation == ACQUIRE:
            raise error
        return Released()

    return does


def undoing(seen: list[str]) -> Plan[str]:
    """Acquire; whatever goes wrong, release and say what it was."""
    try:
        yield from perform(ACQUIRE)
    except GeneratorExit:
        seen.append("closed")
        raise
    except BaseException as error:
        seen.append(type(error).__name__)
        yield from perform(RELEASE)
        raise
    return "done"


def both(plan: Callable[[], Plan[AnswerT]], does: Callable[[op.Operation[Any]], Any]) -> list[AnswerT]:
    """Run a plan under each driver."""

    async def asynchronously() -> AnswerT:
        return await run_async(plan(), AsyncScriptedStore(does))

    return [run_sync(plan(), ScriptedStore(does)), asyncio.run(asynchronously())]


def test_a_plans_outcome_is_what_it_returns() -> None:
    def plan() -> Plan[tuple[float, Any]]:
        now = yield from perform(Now())
        answer = yield from perform(RELEASE)
        return now, answer

    assert both(plan, lambda _: Released()) == [(7.0, Released()), (7.0, Released())]


def test_a_plan_that_yields_nothing_ends_at_once() -> None:
    def plan() -> Plan[str]:
        return "at once"
        yield

    assert both(plan, lambda _: None) == ["at once", "at once"]


def test_an_unknown_effect_is_an_error_that_the_plan_sees() -> None:
    def plan() -> Plan[str]:
        try:
            yield Unheard()
        except TypeError as error:
            return str(error)
        return "performed"

    assert both(plan, lambda _: None) == ["no driver performs Unheard()", "no driver performs Unheard()"]


def test_a_failed_operation_is_raised_where_the_plan_yielded_it_and_it_can_go_on() -> None:
    """The plan may catch the failure and yield its next operation."""

    def plan() -> Plan[str]:
        for _ in range(3):
            try:
                yield from perform(ACQUIRE)
            except StoreUnavailable:
                continue
        return "gave up after three"

    assert both(plan, fails(StoreUnavailable())) == ["gave up after three"] * 2


@pytest.mark.parametrize("error", [StoreRefused("no"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_a_plan_undoes_before_an_error_goes_on(error: BaseException) -> None:
    seen: list[str] = []
    store = ScriptedStore(fails(error))
    with pytest.raises(type(error)) as caught:
        run_sync(undoing(seen), store)
    assert caught.value is error
    assert store.asked == [ACQUIRE, RELEASE]
    assert seen == [type(error).__name__]


def test_a_plan_that_is_closed_hears_of_it_and_asks_nothing_more() -> None:
    seen: list[str] = []
    plan = undoing(seen)
    assert next(plan) == ACQUIRE
    plan.close()
    assert seen == ["closed"]


def performed(effect: Effect[Any], store: ScriptedStore | AsyncScriptedStore) -> object:
    if isinstance(store, ScriptedStore):
        return run_sync(perform(effect), store)
    return asyncio.run(run_async(perform(effect), store))


@pytest.mark.parametrize("make", [ScriptedStore, AsyncScriptedStore])
@pytest.mark.parametrize(("timeout", "deadline"), [(None, inf), (5.0, 12.0), (0.01, 7.1), (0, 9.0)])
def test_a_first_attempt_has_the_deadline_of_its_wait_and_is_timed_before_and_after(
    make: type[ScriptedStore | AsyncScriptedStore], timeout: float | None, deadline: float
) -> None:
    clock, trying = ManualClock(start=7.0), Try(ACQUIRE, FREED, timeout)
    store = make(lambda _: clock.advance(0.5))
    store.clock = clock
    assert performed(trying, store) == (None, 7.5)
    assert (trying.asked_at, store.deadlines, store.asked) == (7.0, [deadline], [ACQUIRE])


@pytest.mark.parametrize("make", [ScriptedStore, AsyncScriptedStore])
def test_a_first_attempt_is_not_made_behind_others_unless_it_is_the_only_one(
    make: type[ScriptedStore | AsyncScriptedStore],
) -> None:
    store = make(lambda _: "taken")
    place = store.wakeups.join(FREED)
    for timeout in (None, 5.0):
        assert performed(Try(ACQUIRE, FREED, timeout), store) is None
    assert store.asked == []
    assert performed(Try(ACQUIRE, FREED, 0), store) == ("taken", 7.0)
    store.wakeups.leave(place, inf)
    assert performed(Try(ACQUIRE, FREED, 5.0), store) == ("taken", 7.0)


async def held_back(store: AsyncScriptedStore, plan: Plan[Any]) -> asyncio.Task[Any]:
    """Start a plan whose first operation is held back at the gate."""
    store.gate.clear()
    task = asyncio.ensure_future(run_async(plan, store))
    await store.begun.wait()
    return task


@pytest.mark.parametrize("times", [1, 5])
def test_a_cancellation_waits_for_the_running_operation_and_then_the_plan_undoes_it(times: int) -> None:
    seen: list[str] = []

    async def test() -> None:
        store = AsyncScriptedStore(lambda _: Released())
        task = await held_back(store, undoing(seen))
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        assert seen == []
        store.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert store.ended == [ACQUIRE, RELEASE]

    asyncio.run(test())
    assert seen == ["CancelledError"]


def test_the_plan_sees_a_cancellation_even_if_the_operation_failed_meanwhile() -> None:
    seen: list[str] = []

    async def test() -> None:
        store = AsyncScriptedStore(fails(StoreUnavailable()))
        task = await held_back(store, undoing(seen))
        task.cancel()
        await asyncio.sleep(0)
        store.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(test())
    assert seen == ["CancelledError"]


def test_the_failure_of_an_operation_whose_caller_was_cancelled_is_not_logged() -> None:
    told: list[str] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        store = AsyncScriptedStore(fails(StoreUnavailable()))
        task = await held_back(store, undoing([]))
        task.cancel()
        await asyncio.sleep(0)
        store.gate.set()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(test())
    gc.collect()
    assert told == []


def test_a_cancellation_between_operations_is_delivered_at_once() -> None:
    seen: list[str] = []

    def plan() -> Plan[None]:
        place = yield from perform(Join("freed"))
        try:
            yield from perform(Park(place, inf, inf))
        except asyncio.CancelledError:
            seen.append("told while parked")
            raise

    async def test() -> None:
        task = asyncio.ensure_future(run_async(plan(), AsyncScriptedStore(lambda _: None)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(test())
    assert seen == ["told while parked"]


# --- event loops that are left ---


def never_answered() -> Plan[None]:
    """Ask for ever."""
    while True:
        yield from perform(RELEASE)


@pytest.mark.parametrize("leaving", get_args(Leaving))
@pytest.mark.parametrize("rounds", range(1, 8))
def test_a_loop_that_is_left_after_any_round_has_nothing_to_warn_of(rounds: int, leaving: Leaving) -> None:
    async def work() -> None:
        await run_async(never_answered(), AsyncScriptedStore(lambda _: Released()))

    assert said_of_leaving(work, rounds, leaving) == []


@pytest.mark.parametrize("rounds", range(1, 8))
def test_a_plan_that_is_closed_in_a_living_loop_asks_nothing_more(rounds: int) -> None:
    loop = asyncio.new_event_loop()
    store = AsyncScriptedStore(lambda _: Released())
    work = run_async(never_answered(), store)
    loop.set_exception_handler(lambda *_: None)  # it would tell of the task whose coroutine was closed
    task = loop.create_task(work)
    for _ in range(rounds):
        run_a_round(loop)
    work.close()
    asked = len(store.asked)
    for _ in range(5):
        run_a_round(loop)
    assert len(store.asked) == asked
    assert task.done()
    del task
    gc.collect()
    loop.close()


def test_a_begun_coroutine_does_nothing_before_its_task_does() -> None:
    made: list[str] = []

    async def work() -> str:
        made.append("made")
        return "done"

    async def test() -> None:
        task = asyncio.create_task(begun(work))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert made == []
        assert await asyncio.create_task(begun(work)) == "done"

    dropped = begun(work)
    del dropped
    asyncio.run(test())
    assert made == ["made"]

"""Drivers of plans, the owners of locks, and handlers that interrupt them."""

import asyncio
import contextvars
import json
import multiprocessing
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar, get_args

import pytest

import segmented
from segmented import Lock, MemoryStore, Order, Pool, protocol as op
from segmented.clock import Clock, ManualClock
from segmented.compat import Lock as CompatLock
from segmented.errors import InvalidInput, SegmentedError
from segmented.locks import FairLock, FenceGuard, MultiLock, Semaphore
from segmented.locks.reentrant import task_owner, thread_owner
from segmented.models import Released
from segmented.plans import Join, Park, Plan, Try, perform, run_async, run_sync
from segmented.protocol import Effect
from segmented.stock import EnvelopePublisher
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups
from tests.support.loops import Leaving, said_of_leaving

AnswerT = TypeVar("AnswerT")

ACQUIRE = op.AcquireLock("x", "h", 1_000)
RELEASE = op.ReleaseLock("x", "h")


FREED = "freed"


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


def test_a_context_that_is_carried_into_another_thread_does_not_carry_the_owner() -> None:
    here = thread_owner()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(contextvars.copy_context().run, thread_owner).result() != here


def test_h3_a_child_task_is_another_owner() -> None:
    async def parent() -> list[str]:
        return [
            task_owner(),
            await asyncio.create_task(owner()),
            (await asyncio.gather(owner()))[0],
            task_owner(),
        ]

    async def owner() -> str:
        return task_owner()

    first, child, other_child, again = asyncio.run(parent())
    assert first == again
    assert len({first, child, other_child}) == 3


def test_outside_of_a_task_there_is_no_task_to_be_the_owner() -> None:
    with pytest.raises(InvalidInput, match=r"^task_owner\(\) was called outside an asyncio task$"):
        task_owner()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_is_another_owner_than_the_thread_it_was_copied_from() -> None:
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    here = thread_owner()
    child = multiprocessing.get_context("fork").Process(target=tell_owner, args=(theirs,))
    child.start()
    assert ours.poll(20)
    there = ours.recv()
    child.join(20)
    assert there.startswith("thread-")
    assert there != here
    assert thread_owner() == here


def tell_owner(end: Connection) -> None:
    end.send(thread_owner())


SOON: Final = 120.0
OURS: Final = str(Path(segmented.__file__).parent)
NAMES: Final = count()


def interrupted_before_each_line(work: Callable[[], object], handler: Callable[[], object]) -> int:
    """Do the work in a thread, and run the handler before each line of ours; return at how many it has run."""
    ran: set[tuple[object, int]] = set()
    is_done = False

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401  # the type that `settrace` has
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        place = frame.f_code, frame.f_lineno
        if event == "line" and place not in ran:
            ran.add(place)
            handler()  # nothing is traced while a trace function runs
        return trace

    def run() -> None:
        nonlocal is_done
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
        is_done = True

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive(), "it waits for itself"
    assert is_done
    return len(ran)


def lock_once(kind: Any, store: Any) -> None:  # noqa: ANN401  # any lock
    name = f"name-{next(NAMES)}"
    lease = kind(store, [name] if kind is MultiLock else name, ttl=600, renew=True).acquire(timeout=SOON)
    lease.renew()
    lease.release()


def sell_once(pool: Pool) -> None:
    order_id = f"o-{next(NAMES)}"
    pool.reserve(order_id)
    pool.confirm(order_id)
    pool.reserve_many([Order(f"{order_id}-{number}") for number in range(3)])
    with pool.grant(f"{order_id}-granted"):
        pool.available()


def of_memory(kind: Any) -> Callable[[Any], Callable[[], object]]:  # noqa: ANN401  # any lock
    return lambda _: partial(lock_once, kind, MemoryStore())


def of_redis(kind: Any) -> Callable[[Any], Callable[[], object]]:  # noqa: ANN401  # any lock
    return lambda request: partial(lock_once, kind, request.getfixturevalue("store"))


def pool_in_memory(_: pytest.FixtureRequest) -> Callable[[], object]:
    pool = Pool(MemoryStore(), "mug")
    pool.open(stock=10**6, segments=4)
    return partial(sell_once, pool)


def pool_on_redis(request: pytest.FixtureRequest) -> Callable[[], object]:
    pool = Pool(request.getfixturevalue("store"), "mug")
    pool.open(stock=10**6, segments=4)
    return partial(sell_once, pool)


def compatible(request: pytest.FixtureRequest) -> Callable[[], object]:
    client = request.getfixturevalue("store").client

    def use() -> None:
        with CompatLock(client, f"key-{next(NAMES)}", timeout=600):
            pass

    return use


def fence(_: pytest.FixtureRequest) -> Callable[[], object]:
    guard, tokens = FenceGuard(), count(1)
    return lambda: guard.check(f"resource-{next(NAMES)}", token=next(tokens))


def publisher(_: pytest.FixtureRequest) -> Callable[[], object]:
    found = EnvelopePublisher(lambda _sku, _order_ids: None)
    return lambda: found.put("mug", [f"o-{next(NAMES)}"])


MEMBERS: Final = {
    "Lock in memory": of_memory(Lock),
    "FairLock in memory": of_memory(FairLock),
    "MultiLock in memory": of_memory(MultiLock),
    "Semaphore in memory": of_memory(partial(Semaphore, permits=10**6)),
    "Lock on Redis": of_redis(Lock),
    "a pool in memory": pool_in_memory,
    "a pool on Redis": pool_on_redis,
    "a lock of redis-py's interface": compatible,
    "FenceGuard": fence,
    "EnvelopePublisher": publisher,
}


@pytest.mark.parametrize("member", MEMBERS)
def test_a_handler_uses_what_it_interrupts_without_waiting_for_itself(
    request: pytest.FixtureRequest, member: str
) -> None:
    use = MEMBERS[member](request)
    assert interrupted_before_each_line(use, use) > 0


def test_no_python_code_runs_in_the_middle_of_a_script_in_memory() -> None:
    calls: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    store = MemoryStore()
    text = "return { redis.sha1hex('a'), cjson.decode(ARGV[1])[2], #cjson.decode(ARGV[1]) }"
    store.model.ask("EVAL", f"\n{text}", 0, "[]")
    arguments = ("EVAL", f"\n{text}", 0, json.dumps(["a", '\u20ac\n"\\u\t', 3]))
    sys.setprofile(profile)
    try:
        reply = store.model.ask(*arguments)
    finally:
        sys.setprofile(None)
    assert reply == [b"86f7e437faa5a7fce15d1ddcb9eaeaea377667b8", '\u20ac\n"\\u\t'.encode(), 3]
    assert [name for name in calls if "json" in name or "sha1" in name or "decode" in name] == []

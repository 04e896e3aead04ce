"""The line of the processes that wait for a lock, and how they leave it."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any, Final, NoReturn
from uuid import uuid4

import pytest

from segmented import (
    AcquireTimeout,
    AsyncLock,
    AsyncMemoryStore,
    AsyncPool,
    AsyncRedisStore,
    AsyncReentrantLock,
    AsyncSemaphore,
    Lock,
    MemoryStore,
    Pool,
    RedisStore,
    ReentrantLock,
    Semaphore,
    StoreUnavailable,
    protocol as op,
)
from segmented.clock import ManualClock
from segmented.locks import AsyncReadWriteLock, MultiLock, ReadWriteLock
from segmented.models import Acquired, Busy, Held, Order, Released
from segmented.plans.line import AHEAD_SECONDS, Line, Place, stagger
from segmented.protocol import (
    AcquireLock,
    AcquireWrite,
    LeaveLine,
    LeavePoolLine,
    Operation,
    ReleaseLock,
    ReleaseReadWrite,
)
from segmented.protocol.lock import LEFT_MS, NEWCOMER, NEWCOMERS_MAX, WAITERS_MAX
from segmented.protocol.reentrant import AcquireReentrant, ReleaseReentrant
from segmented.protocol.semaphore import AcquirePermit, ReleasePermit
from segmented.servers import ValkeyServer
from segmented.stores.memory import MemoryModel
from tests.fixtures.suite import let_bounds_be
from tests.support.contract.parking import has_come_to_rest, lines_of, parked

KINDS: dict[str, tuple[Callable[[str, str, str], Operation[Any]], Callable[[str, str], Operation[Any]]]] = {
    "lock": (
        lambda name, holder, party: AcquireLock(name, holder, 60_000, party=party),
        ReleaseLock,
    ),
    "reentrant": (
        lambda name, holder, party: AcquireReentrant(name, f"owner {holder}", holder, 60_000, party=party),
        lambda name, holder: ReleaseReentrant(name, f"owner {holder}", holder),
    ),
    "write": (
        lambda name, holder, party: AcquireWrite(name, holder, 60_000, 0, party),
        ReleaseReadWrite,
    ),
    "semaphore": (
        lambda name, holder, party: AcquirePermit(name, holder, 60_000, 1, party=party),
        ReleasePermit,
    ),
}
"""Kinds with a line -> the operation that acquires, and the one that releases."""


class Door:
    """One lock, asked for as by many processes."""

    def __init__(self, store: RedisStore | MemoryStore, kind: str = "lock") -> None:
        self._store, self.name = store, uuid4().hex
        self._acquiring, self._releasing = KINDS[kind]
        self._count = 0

    def ask(self, holder: str, party: str = "") -> Acquired | Held:
        answer = self._store.execute(self._acquiring(self.name, holder, party))
        assert isinstance(answer, (Acquired, Held))
        return answer

    def release(self, holder: str) -> None:
        assert self._store.execute(self._releasing(self.name, holder)) == Released()

    def takes(self, party: str = NEWCOMER) -> bool:
        """Return whether a caller gets the lock; give it back at once."""
        self._count += 1
        holder = f"h{self._count}"
        if isinstance(self.ask(holder, party), Held):
            return False
        self.release(holder)
        return True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest, clock: ManualClock, valkey_url: str) -> Iterator[RedisStore | MemoryStore]:
    if request.param == "memory":
        yield MemoryStore(clock=clock)
        return
    with RedisStore.from_url(valkey_url) as found:
        yield found


@pytest.fixture(params=list(KINDS))
def door(request: pytest.FixtureRequest, store: RedisStore | MemoryStore) -> Door:
    """A lock of each kind on each store."""
    return Door(store, request.param)


@pytest.fixture
def due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the turn of the first in line at once, and what is left to it is left for as long as the test lasts."""
    let_bounds_be(0, 60_000, monkeypatch)


@pytest.mark.usefixtures("untimed_turns")
@pytest.mark.parametrize(("party", "turns"), [(NEWCOMER, NEWCOMERS_MAX), ("other", WAITERS_MAX)])
def test_a_free_lock_is_left_to_the_first_after_so_many_turns_of_others(door: Door, party: str, turns: int) -> None:
    door.ask("holder")
    door.ask("first", "first")
    door.release("holder")
    assert [door.takes(party) for _ in range(turns + 2)] == [True] * turns + [False, False]
    assert door.takes("first")
    assert door.takes("last")


@pytest.mark.parametrize("kind", KINDS)
def test_after_50_ms_a_free_lock_is_left_to_the_first_after_any_number_of_turns(kind: str, clock: ManualClock) -> None:
    door = Door(MemoryStore(clock=clock), kind)
    door.ask("holder")
    door.ask("first", "first")
    clock.advance(0.049)
    door.release("holder")
    assert door.takes()
    clock.advance(0.002)
    assert (door.takes(), door.takes("first"), door.takes()) == (False, True, True)


@pytest.mark.usefixtures("due_at_once")
def test_a_due_lock_is_left_to_the_first_but_not_by_an_attempt_that_will_not_wait(door: Door) -> None:
    door.ask("holder")
    door.ask("first", "first")
    door.release("holder")
    assert (door.takes(""), door.takes(), door.takes("")) == (True, False, True)
    assert (door.takes("first"), door.takes()) == (True, True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_does_not_come_in_40_ms_loses_its_place_to_the_next(kind: str, clock: ManualClock) -> None:
    door = Door(MemoryStore(clock=clock), kind)
    door.ask("holder")
    for party in ("dead", "next", "dead too", "last"):
        door.ask(party, party)
    clock.advance(0.06)
    door.release("holder")
    assert not door.takes("next")
    clock.advance(LEFT_MS / 1000 - 0.001)
    assert not door.takes("next")
    clock.advance(0.002)
    assert (door.takes("next"), door.takes("last"), door.takes()) == (True, True, True)


def test_a_release_wakes_only_the_first_and_its_turn_wakes_a_process_behind() -> None:
    clock, woken = ManualClock(), list[str]()
    line = Line("freed", "me")
    place = line.join(lambda: woken.append("me"))
    place.ahead = 2
    line.park(place, clock.now() + 60)
    line.hear(clock.now(), "a holder")
    assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + AHEAD_SECONDS + stagger(2)
    line.hear(clock.now(), "turn:another")
    after = (LEFT_MS + 1) / 1000 + stagger(2)
    assert line.next_step(place, clock.now(), clock.now() + 100) == pytest.approx(clock.now() + after)
    for said in ("first:another 30000", "taken:"):  # what was free is taken
        line.hear(clock.now(), "a holder")
        line.hear(clock.now(), said)
        assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + 60
    line.hear(clock.now(), "turn:*")
    assert line.next_step(place, clock.now(), clock.now() + 100) == clock.now() + stagger(2)
    line.hear(clock.now(), "turn:me")
    assert line.next_step(place, clock.now(), clock.now() + 100) is True


def parked_after_an_attempt(said: list[str], ahead: int) -> tuple[ManualClock, Line, Place]:
    """Return a place whose first attempt found so many ahead, and that heard these messages meanwhile."""
    clock = ManualClock()
    line = Line("freed", "me")
    place = line.join(lambda: None)
    for one in said:
        line.hear(clock.now(), one)
    place.ahead = ahead
    line.park(place, clock.now() + 60)
    return clock, line, place


@pytest.mark.parametrize(
    ("said", "ahead", "after"),
    [
        ("a holder", 2, AHEAD_SECONDS + stagger(2)),  # those ahead are to take it
        ("a holder", 0, 0),
        ("turn:me", 2, 0),
        ("turn:another", 2, 60),
        ("frozen", 2, 0),
    ],
)
def test_a_release_during_an_attempt_is_left_to_the_processes_that_it_found_ahead(
    said: str, ahead: int, after: float
) -> None:
    clock, line, place = parked_after_an_attempt([said], ahead)
    step = line.next_step(place, clock.now(), clock.now() + 100)
    assert step == clock.now() + after if after else step is True


def test_after_one_waiter_had_its_turn_its_process_asks_again_at_the_next_release() -> None:
    clock, line, place = parked_after_an_attempt([], 2)
    served = line.join(lambda: None)
    line.leave(served, inf)
    line.hear(clock.now(), "a holder")
    assert line.next_step(place, clock.now(), clock.now() + 100) is True


@pytest.mark.usefixtures("due_at_once")
def test_of_3_permits_2_are_left_to_the_2_that_wait_and_a_newcomer_takes_the_third(
    store: RedisStore | MemoryStore,
) -> None:
    name = uuid4().hex

    def ask(holder: str, party: str = "") -> Acquired | Held:
        return store.execute(AcquirePermit(name, holder, 60_000, 3, party=party))

    for holder in "abc":
        ask(holder)
    ask("w1", "first")
    ask("w2", "second")
    for holder in "abc":
        store.execute(ReleasePermit(name, holder))
    found = [type(ask(f"n{number}", NEWCOMER)) for number in range(2)]
    assert found == [Acquired, Held]
    assert [type(ask(f"late {party}", party)) for party in ("second", "first")] == [Acquired, Acquired]


@pytest.mark.usefixtures("due_at_once")
def test_a_process_that_leaves_loses_its_place_each_time_and_the_next_is_first(
    door: Door, store: RedisStore | MemoryStore
) -> None:
    door.ask("holder")
    for party in "abc":
        door.ask(f"w{party}", party)
    assert [store.execute(LeaveLine(door.name, party)) for party in "acac"] == [True, True, False, False]
    behind = door.ask("wd", "d")
    assert isinstance(behind, Held)
    assert behind.ahead == 1
    door.release("holder")
    assert (door.takes(), door.takes("b")) == (False, True)


@pytest.mark.usefixtures("due_at_once")
def test_an_owner_enters_again_at_once_also_if_other_processes_wait(store: RedisStore | MemoryStore) -> None:
    name = uuid4().hex
    store.execute(AcquireReentrant(name, "me", "1", 60_000))
    store.execute(AcquireReentrant(name, "other", "2", 60_000, party="first"))
    assert isinstance(store.execute(AcquireReentrant(name, "me", "3", 60_000, party=NEWCOMER)), Acquired)


def test_a_multi_lock_that_would_wait_leaves_a_name_to_the_process_whose_turn_it_is(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.protocol.lock.LINE", "2 15 0 60000 60000")  # it is its turn at once
    with RedisStore.from_url(valkey.url) as store:
        store.execute(AcquireLock("a", "holder", 60_000))
        store.execute(AcquireLock("a", "first", 60_000, party="first"))
        store.execute(ReleaseLock("a", "holder"))
        asked: list[Any] = []

        def noting(operations: Any, **options: Any) -> Any:  # noqa: ANN401  # what a batch takes and answers
            answers = type(store).execute_many(store, operations, **options)
            asked.append(answers)
            if len(asked) == 1:
                raise KeyboardInterrupt  # it need not wait, and gives all back
            return answers

        store.execute_many = noting  # type: ignore[method-assign]  # listens in
        with pytest.raises(KeyboardInterrupt):
            MultiLock(store, ["a", "b"], ttl=60).acquire(timeout=60)
        assert isinstance(asked[0][0], Held)
        assert isinstance(store.execute(AcquireLock("a", "first", 60_000, party="first")), Acquired)
        store.execute(ReleaseLock("a", "first"))
        MultiLock(store, ["a", "b"], ttl=60).acquire(timeout=0).release()


LONG_MS: Final = 600_000
PROCESSES: Final = 3
HANDLES: dict[str, Callable[[Any], Any]] = {
    "lock": lambda store: Lock(store, "door", ttl=600).acquire,
    "reentrant": lambda store: ReentrantLock(store, "door", owner=uuid4().hex, ttl=600).acquire,
    "write": lambda store: ReadWriteLock(store, "door", ttl=600).write.acquire,
    "semaphore": lambda store: Semaphore(store, "door", permits=1, ttl=600).acquire,
    "grant": lambda store: partial(Pool(store, "door", ttl=600).grant, uuid4().hex),
}
ASYNC_HANDLES: dict[str, Callable[[Any], Any]] = {
    "lock": lambda store: AsyncLock(store, "door", ttl=600).acquire,
    "reentrant": lambda store: AsyncReentrantLock(store, "door", owner=uuid4().hex, ttl=600).acquire,
    "write": lambda store: AsyncReadWriteLock(store, "door", ttl=600).write.acquire,
    "semaphore": lambda store: AsyncSemaphore(store, "door", permits=1, ttl=600).acquire,
    "grant": lambda store: partial(AsyncPool(store, "door", ttl=600).grant, uuid4().hex),
}
ASKING: dict[str, Operation[Any]] = {
    "lock": op.AcquireLock("door", "last", LONG_MS, party="last"),
    "reentrant": op.AcquireReentrant("door", "last", "last", LONG_MS, party="last"),
    "write": op.AcquireWrite("door", "last", LONG_MS, LONG_MS, party="last"),
    "semaphore": op.AcquirePermit("door", "last", LONG_MS, 1, party="last"),
    "grant": op.Grant("door", Order("last", 1), "last", LONG_MS, LONG_MS, keep_refusal=False, party="last"),
}


class Waited:
    """A lock or pool that is held, on a clock that a wait moves, and stores of several processes."""

    def __init__(self, kind: str) -> None:
        clock = ManualClock(auto=True)
        self._kind, self._model = kind, MemoryModel(clock)
        self._first, *self.stores = (MemoryStore(clock=clock, model=self._model) for _ in range(1 + PROCESSES))
        self.async_stores = [AsyncMemoryStore(clock=ManualClock(), model=self._model) for _ in range(PROCESSES)]
        Pool(self._first, "door").open(stock=50, segments=1)
        self.held = HANDLES[kind](self._first)(timeout=0)

    def ahead(self) -> int:
        """Return the processes in the line before one that comes now."""
        answer = self._first.execute(ASKING[self._kind])
        assert isinstance(answer, Held | Busy)
        leave = LeavePoolLine if self._kind == "grant" else LeaveLine
        self._first.execute(leave("door", "last"))
        return answer.ahead


each_kind = pytest.mark.parametrize("kind", HANDLES)


@each_kind
def test_processes_whose_waiters_gave_up_delay_nobody(kind: str) -> None:
    waited = Waited(kind)
    for store in waited.stores:
        try:
            assert not HANDLES[kind](store)(timeout=1.5)
        except AcquireTimeout:
            assert kind != "grant"
    assert waited.ahead() == 0


@each_kind
def test_processes_whose_waiters_were_cancelled_delay_nobody(kind: str) -> None:
    waited = Waited(kind)

    async def cancel_waiters() -> None:
        """Let two tasks of each process wait, and cancel them all."""
        acquiring = [ASYNC_HANDLES[kind](store)(timeout=None) for _ in range(2) for store in waited.async_stores]
        waiting = [asyncio.ensure_future(one) for one in acquiring]
        while not all(has_come_to_rest(store, 2) for store in waited.async_stores):  # noqa: ASYNC110  # a line has no event
            await asyncio.sleep(0)
        assert waited.ahead() == PROCESSES
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert all(task.cancelled() for task in waiting)
        assert [lines_of(store) for store in waited.async_stores] == [{}] * PROCESSES

    asyncio.run(cancel_waiters())
    assert waited.ahead() == 0


@each_kind
def test_processes_whose_waiting_threads_were_interrupted_delay_nobody(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    waited = Waited(kind)
    for store in waited.stores:
        monkeypatch.setattr(store.wakeups, "park", ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            HANDLES[kind](store)(timeout=60)
    assert waited.ahead() == 0


def test_a_waiter_that_others_of_its_process_outlast_leaves_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = Waited("lock")
    store, left = waited.async_stores[0], list[Operation[Any]]()
    execute = store.execute

    async def noting(operation: Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
        if isinstance(operation, LeaveLine):
            left.append(operation)
        return await execute(operation, deadline=deadline)

    monkeypatch.setattr(store, "execute", noting)

    async def body() -> list[int]:
        waiting = [asyncio.ensure_future(ASYNC_HANDLES["lock"](store)(timeout=None)) for _ in range(2)]
        while not has_come_to_rest(store, 2):  # noqa: ASYNC110  # as above
            await asyncio.sleep(0)
        counts = []
        for task in reversed(waiting):
            task.cancel()
            await asyncio.wait([task])
            counts.append(len(left))
        return counts

    assert asyncio.run(body()) == [0, 1]
    assert waited.ahead() == 0


def test_a_timed_out_wait_ends_although_what_leaves_the_line_gets_no_answer() -> None:
    class Falters(MemoryStore):
        def execute(self, operation: Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
            if isinstance(operation, (LeaveLine, LeavePoolLine)):
                raise StoreUnavailable("no answer")
            return super().execute(operation, deadline=deadline)

    lock = Lock(Falters(clock=ManualClock(auto=True)), "door", ttl=60)
    lock.acquire()
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0.05)


def test_a_waiter_in_a_loop_of_eager_tasks_hears_a_release(valkey_url: str) -> None:
    async def body() -> None:
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))  # since Python 3.12
        async with (
            await AsyncRedisStore.from_url(valkey_url) as store,
            await AsyncRedisStore.from_url(valkey_url) as other,
        ):
            name = uuid4().hex
            held = await AsyncLock(other, name).acquire(timeout=0)
            waiter = asyncio.ensure_future(AsyncLock(store, name).acquire())
            await parked(store, 1)
            await held.release()
            await (await waiter).release()

    asyncio.run(body())


def test_an_attempt_of_a_process_that_waits_says_how_many_are_ahead_of_it(door: Door) -> None:
    door.ask("holder")
    answers = [door.ask(f"w{party}", party) for party in "abcab"]
    assert [answer.ahead for answer in answers if isinstance(answer, Held)] == [0, 1, 2, 0, 1]

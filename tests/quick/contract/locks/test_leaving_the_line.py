"""Processes whose waiters gave up, were cancelled or were interrupted leave the line of processes, and delay nobody."""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn
from uuid import uuid4

import pytest

from segmented import (
    AcquireTimeout,
    AsyncLock,
    AsyncMemoryStore,
    AsyncPool,
    AsyncReentrantLock,
    AsyncSemaphore,
    Lock,
    MemoryStore,
    Pool,
    ReentrantLock,
    Semaphore,
    StoreUnavailable,
    protocol as op,
)
from segmented.clock import ManualClock
from segmented.locks import AsyncReadWriteLock, ReadWriteLock
from segmented.models import Busy, Held, Order
from segmented.protocol import LeaveLine, LeavePoolLine, Operation
from segmented.stores.memory import MemoryModel
from tests.support.contract.parking import has_come_to_rest, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable


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
                message = "no answer"
                raise StoreUnavailable(message)
            return super().execute(operation, deadline=deadline)

    lock = Lock(Falters(clock=ManualClock(auto=True)), "door", ttl=60)
    lock.acquire()
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0.05)

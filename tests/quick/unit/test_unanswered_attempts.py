"""An attempt without an answer may have taken something: its process releases it as soon as the store answers."""

from __future__ import annotations

import asyncio
import threading
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

from segmented import (
    AsyncFairLock,
    AsyncLock,
    AsyncMemoryStore,
    AsyncPool,
    AsyncReadWriteLock,
    AsyncReentrantLock,
    AsyncSemaphore,
    FairLock,
    Lock,
    MemoryStore,
    Pool,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
    StoreUnavailable,
    protocol as op,
)
from segmented.clock import ManualClock
from segmented.errors import LockUnreachable
from segmented.locks import AsyncMultiLock, MultiLock
from segmented.locks.keeper import async_keeper
from segmented.models import Busy
from segmented.protocol.base import Release
from segmented.protocol.fair import AcquireFair, ReleaseFair
from segmented.stock import AsyncGrant, Grant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.errors import SegmentedError
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")
SOON: Final = 120.0
LOST: Final = StoreUnavailable("the reply was lost")

KINDS: Final[dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "lock": (lambda store: Lock(store, "x"), lambda store: AsyncLock(store, "x")),
    "fair": (lambda store: FairLock(store, "x"), lambda store: AsyncFairLock(store, "x")),
    "read": (lambda store: ReadWriteLock(store, "x").read, lambda store: AsyncReadWriteLock(store, "x").read),
    "write": (lambda store: ReadWriteLock(store, "x").write, lambda store: AsyncReadWriteLock(store, "x").write),
    "reentrant": (lambda store: ReentrantLock(store, "x"), lambda store: AsyncReentrantLock(store, "x")),
    "multi": (lambda store: MultiLock(store, ["x", "y"]), lambda store: AsyncMultiLock(store, ["x", "y"])),
    "semaphore": (lambda store: Semaphore(store, "x", permits=1), lambda store: AsyncSemaphore(store, "x", permits=1)),
}


class LossyStore(MemoryStore):
    """Loses the replies of the next `lost` operations, of which it runs the first alone; tells when one released."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock())
        self.lost = 0
        self.released = threading.Event()
        self._is_first = True

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        if self.lost == 0:
            answer = super().execute(operation, deadline=deadline)
            if isinstance(operation, Release):
                self.released.set()
            return answer
        self.lost -= 1
        if self._is_first:
            self._is_first = False
            super().execute(operation, deadline=deadline)
        raise LOST


class AsyncLossyStore(AsyncMemoryStore):
    """The same for asyncio."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock())
        self.lost = 0
        self.released = asyncio.Event()
        self._is_first = True

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        if self.lost == 0:
            answer = await super().execute(operation, deadline=deadline)
            if isinstance(operation, Release):
                self.released.set()
            return answer
        self.lost -= 1
        if self._is_first:
            self._is_first = False
            await super().execute(operation, deadline=deadline)
        raise LOST


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_of_an_unanswered_attempt_is_released_once_the_store_answers(kind: str) -> None:
    store = LossyStore()
    lock: Any = KINDS[kind][0](store)
    store.lost = 4 if kind == "multi" else 2  # the attempt and its undoing
    with pytest.raises(LockUnreachable):
        lock.acquire(timeout=0)
    assert store.released.wait(SOON)
    assert lock.try_acquire() is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_of_an_unanswered_attempt_is_released_in_asyncio_too(kind: str) -> None:
    async def body() -> None:
        store = AsyncLossyStore()
        lock: Any = KINDS[kind][1](store)
        store.lost = 4 if kind == "multi" else 2
        with pytest.raises(LockUnreachable):
            await lock.acquire(timeout=0)
        async with asyncio.timeout(SOON):
            await store.released.wait()
        assert await lock.try_acquire() is not None

    asyncio.run(body())


def test_the_segment_of_an_unanswered_grant_is_freed_and_its_units_await_the_repeat() -> None:
    store = LossyStore()
    pool = Pool(store, "ticket", ttl=600, hold=600)
    pool.open(stock=3, segments=1)
    store.lost = 1
    with pytest.raises(StoreUnavailable):
        pool.grant("a", timeout=0)
    assert store.released.wait(SOON)
    other, again = pool.grant("b", timeout=0), pool.grant("a", timeout=0)
    assert isinstance(other, Grant)
    assert isinstance(again, Busy)
    other.confirm()
    again = pool.grant("a", timeout=0)
    assert isinstance(again, Grant)
    assert (again.replay, again.confirm().quantity, pool.state().confirmed) == (True, 1, 2)


def test_the_segment_of_an_unanswered_grant_is_freed_in_asyncio_too() -> None:
    async def body() -> None:
        store = AsyncLossyStore()
        pool = AsyncPool(store, "ticket", ttl=600, hold=600)
        await pool.open(stock=3, segments=1)
        store.lost = 1
        with pytest.raises(StoreUnavailable):
            await pool.grant("a", timeout=0)
        async with asyncio.timeout(SOON):
            await store.released.wait()
        other = await pool.grant("b", timeout=0)
        assert isinstance(other, AsyncGrant)
        await other.confirm()
        again = await pool.grant("a", timeout=0)
        assert isinstance(again, AsyncGrant)
        assert (again.replay, (await again.confirm()).quantity) == (True, 1)

    asyncio.run(body())


class DeafFrom(MemoryStore):
    """Loses all replies from the first operation of `kind` on; tells when a keeper has released a fair lock."""

    kind: type[object] = type(None)

    def __init__(self) -> None:
        super().__init__()
        self.is_deaf = False
        self.released = threading.Event()

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        if self.is_deaf:
            raise LOST
        answer = super().execute(operation, deadline=deadline)
        self.is_deaf = isinstance(operation, self.kind)
        if self.is_deaf:
            raise LOST
        return answer

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        answers = super().execute_many(operations, deadline=deadline)
        if any(isinstance(operation, ReleaseFair) for operation in operations):
            self.released.set()
        return answers


def test_a_place_in_a_fair_queue_that_could_not_be_given_up_is_given_up_later() -> None:
    store = DeafFrom()
    lock = FairLock(store, "x", ttl=600)
    held = lock.acquire(timeout=0)
    store.kind = ReleaseFair
    with pytest.raises(LockUnreachable):
        lock.acquire(timeout=0.01)
    store.kind, store.is_deaf = type(None), False
    assert store.released.wait(SOON)
    held.release()
    assert lock.try_acquire() is not None  # which takes it only if nobody waits


@pytest.mark.parametrize("kind", [AcquireFair, op.Grant], ids=["turn", "segment"])
def test_the_turn_of_an_unanswered_fair_grant_is_released_once_the_store_answers(kind: type[object]) -> None:
    store = DeafFrom()
    pool = Pool(store, "ticket", ttl=600, hold=600)
    pool.open(stock=3, segments=2)
    store.kind = kind
    with pytest.raises(StoreUnavailable):
        pool.grant("a", timeout=0, fair=True)
    store.kind, store.is_deaf = type(None), False
    assert store.released.wait(SOON)
    other = pool.grant("b", timeout=0, fair=True)
    assert isinstance(other, Grant)
    other.confirm()


def test_a_repeat_with_the_callers_own_holder_id_continues_with_the_same_lease() -> None:
    store = LossyStore()
    pool = Pool(store, "ticket", ttl=600, hold=600)
    pool.open(stock=3, segments=1)
    store.lost = 1
    with pytest.raises(StoreUnavailable):
        pool.grant("a", timeout=0, holder_id="till")
    again = pool.grant("a", timeout=0, holder_id="till")
    assert isinstance(again, Grant)
    assert (again.replay, store.released.is_set()) == (True, False)
    again.confirm()


def test_in_a_long_outage_a_keeper_owes_a_bounded_number_of_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.keeper.OWED_MAX", 3)

    async def body() -> None:
        store = AsyncLossyStore()
        store.lost = 10**6
        for number in range(5):
            with pytest.raises(LockUnreachable):
                await AsyncLock(store, f"x{number}", ttl=600).acquire(timeout=0)
        assert len(async_keeper(store)) == 3

    asyncio.run(body())

"""Processes whose waiters gave up, were cancelled or were interrupted leave the line of processes, and delay nobody."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pytest

from segmented import (
    AcquireTimeout,
    AsyncLock,
    AsyncPool,
    AsyncRedisStore,
    AsyncReentrantLock,
    AsyncSemaphore,
    Lease,
    Lock,
    MemoryStore,
    Pool,
    RedisStore,
    ReentrantLock,
    Semaphore,
    StoreUnavailable,
)
from segmented.protocol import AcquireLock, Operation
from segmented.protocol.lock.operations import LEAVING

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.plans.line import Offer, Place
    from segmented.servers import ValkeyServer

AnswerT = TypeVar("AnswerT")

HANDLES: dict[str, Callable[[Any], Any]] = {
    "lock": lambda store: Lock(store, "given up").acquire,
    "reentrant": lambda store: ReentrantLock(store, "given up", owner=uuid4().hex).acquire,
    "semaphore": lambda store: Semaphore(store, "given up", permits=1).acquire,
    "grant": lambda store: partial(Pool(store, "given-up").grant, uuid4().hex),
}


@pytest.mark.parametrize("kind", HANDLES)
def test_processes_whose_waiters_gave_up_delay_nobody(valkey: ValkeyServer, kind: str) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(20) as threads:
        stores = [stack.enter_context(RedisStore.from_url(valkey.url)) for _ in range(20)]
        Pool(stores[0], "given-up").open(stock=50, segments=1)
        held = HANDLES[kind](stores[0])(timeout=0)

        def give_up(store: RedisStore) -> bool:
            try:
                return bool(HANDLES[kind](store)(timeout=0.3))
            except AcquireTimeout:
                return False

        assert not any(threads.map(give_up, stores[1:]))
        (held.confirm if kind == "grant" else held.release)()
        began = time.monotonic()
        late = HANDLES[kind](stores[0])(timeout=5)
        assert time.monotonic() - began < 0.5
        (late.confirm if kind == "grant" else late.release)()


ASYNC_HANDLES: dict[str, Callable[[Any], Any]] = {
    "lock": lambda store: AsyncLock(store, "given up").acquire,
    "reentrant": lambda store: AsyncReentrantLock(store, "given up", owner=uuid4().hex).acquire,
    "semaphore": lambda store: AsyncSemaphore(store, "given up", permits=1).acquire,
    "grant": lambda store: partial(AsyncPool(store, "given-up").grant, uuid4().hex),
}


async def cancel_waiters(url: str, kind: str) -> None:
    """Let two tasks of each of 20 processes wait, and cancel them all."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(AsyncRedisStore(url)) for _ in range(20)]
        waiting = [asyncio.ensure_future(ASYNC_HANDLES[kind](store)(timeout=20)) for _ in range(2) for store in stores]
        await asyncio.sleep(0.3)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert all(task.cancelled() for task in waiting)


@pytest.mark.parametrize("kind", HANDLES)
def test_processes_whose_waiters_were_cancelled_delay_nobody(valkey: ValkeyServer, kind: str) -> None:
    with RedisStore.from_url(valkey.url) as store:
        Pool(store, "given-up").open(stock=50, segments=1)
        held = HANDLES[kind](store)(timeout=0)
        asyncio.run(cancel_waiters(valkey.url, kind))
        assert list(store.client.scan_iter(match="*:line")) == []
        (held.confirm if kind == "grant" else held.release)()
        began = time.monotonic()
        late = HANDLES[kind](store)(timeout=5)
        assert time.monotonic() - began < 0.5
        (late.confirm if kind == "grant" else late.release)()
        if kind == "grant":
            assert Pool(store, "given-up").available() == 48


@pytest.mark.parametrize("kind", HANDLES)
def test_processes_whose_waiting_threads_were_interrupted_delay_nobody(
    valkey: ValkeyServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(20) as threads:
        stores = [stack.enter_context(RedisStore.from_url(valkey.url)) for _ in range(20)]
        Pool(stores[0], "given-up").open(stock=50, segments=1)
        held = HANDLES[kind](stores[0])(timeout=0)

        def interrupted(store: RedisStore) -> None:
            park = store.wakeups.park

            def until_ctrl_c(place: Place, due: float, _: float, offer: Offer | None = None) -> bool:
                park(place, due, store.clock.now() + 0.3, offer)
                raise KeyboardInterrupt

            monkeypatch.setattr(store.wakeups, "park", until_ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                HANDLES[kind](store)(timeout=20)

        list(threads.map(interrupted, stores[1:]))
        (held.confirm if kind == "grant" else held.release)()
        began = time.monotonic()
        late = HANDLES[kind](stores[0])(timeout=5)
        assert time.monotonic() - began < 0.5
        (late.confirm if kind == "grant" else late.release)()


class Falters(MemoryStore):
    """A store whose answer to the last attempt of a process that leaves is lost; by then the lock is free."""

    holder: Lease | None = None

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        is_last = isinstance(operation, AcquireLock) and operation.party.startswith(LEAVING)
        if is_last and self.holder is not None:
            self.holder.release()
        answer = super().execute(operation, deadline=deadline)
        if is_last:
            message = "no answer"
            raise StoreUnavailable(message)
        return answer


def test_a_last_attempt_without_an_answer_is_undone_and_the_wait_has_timed_out() -> None:
    store = Falters()
    lock = Lock(store, "door", ttl=60)
    store.holder = lock.acquire()
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0.05)
    assert not lock.is_locked()

"""Processes whose waiters gave up, were cancelled or were interrupted leave the line of processes, and delay nobody."""

from __future__ import annotations

import asyncio
import threading
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
    Lock,
    MemoryStore,
    Pool,
    RedisStore,
    ReentrantLock,
    Semaphore,
    StoreUnavailable,
)
from segmented.keys import lock_keys, shard_keys
from segmented.locks import AsyncReadWriteLock, ReadWriteLock
from segmented.locks.lock import LockClaim
from segmented.protocol import LeaveLine, LeavePoolLine, Operation, ReleaseLock
from tests.support.contract.parking import ScriptCount, lines_of, parked, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.plans.line import Offer, Place
    from segmented.servers import ValkeyServer
    from tests.support.proxy import RedisProxy

AnswerT = TypeVar("AnswerT")
PROCESSES = 20

HANDLES: dict[str, Callable[[Any], Any]] = {
    "lock": lambda store: Lock(store, "given up", ttl=60).acquire,
    "reentrant": lambda store: ReentrantLock(store, "given up", owner=uuid4().hex, ttl=60).acquire,
    "write": lambda store: ReadWriteLock(store, "given up", ttl=60).write.acquire,
    "semaphore": lambda store: Semaphore(store, "given up", permits=1, ttl=60).acquire,
    "grant": lambda store: partial(Pool(store, "given-up").grant, uuid4().hex),
}
ASYNC_HANDLES: dict[str, Callable[[Any], Any]] = {
    "lock": lambda store: AsyncLock(store, "given up", ttl=60).acquire,
    "reentrant": lambda store: AsyncReentrantLock(store, "given up", owner=uuid4().hex, ttl=60).acquire,
    "write": lambda store: AsyncReadWriteLock(store, "given up", ttl=60).write.acquire,
    "semaphore": lambda store: AsyncSemaphore(store, "given up", permits=1, ttl=60).acquire,
    "grant": lambda store: partial(AsyncPool(store, "given-up").grant, uuid4().hex),
}


class Waited:
    """One lock or pool on a server, held by the first process, and the line of those that wait for it."""

    def __init__(self, store: RedisStore, kind: str) -> None:
        self._client, self._kind = store.client, kind
        self._key = shard_keys("given-up").line if kind == "grant" else lock_keys("given up").line
        self._name = "given-up" if kind == "grant" else "given up"
        self.take = HANDLES[kind](store)
        Pool(store, "given-up").open(stock=50, segments=1)
        self.held = self.take(timeout=0)

    def waiting(self) -> int:
        """Return the processes in the line."""
        return len(self.places())

    def places(self) -> list[Any]:
        """Return the processes in the line, and when each began to wait."""
        found: Any = self._client.zrange(self._key, 0, -1, withscores=True)
        return list(found)

    def give_back(self) -> None:
        (self.held.confirm if self._kind == "grant" else self.held.release)()

    def is_free_at_once(self) -> bool:
        """Return whether a caller that has not waited gets it with one script."""
        self.give_back()
        with ScriptCount(self._client, self._name) as scripts:
            self.held = self.take(timeout=30)
            return scripts() == 1


@pytest.mark.parametrize("kind", HANDLES)
def test_processes_whose_waiters_gave_up_delay_nobody(valkey: ValkeyServer, kind: str) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(PROCESSES) as threads:
        stores = [stack.enter_context(RedisStore.from_url(valkey.url)) for _ in range(PROCESSES)]
        waited = Waited(stores[0], kind)

        def give_up(store: RedisStore) -> bool:
            try:
                return bool(HANDLES[kind](store)(timeout=1.5))
            except AcquireTimeout:
                return False

        assert not any(threads.map(give_up, stores[1:]))
        assert waited.waiting() == 0
        assert waited.is_free_at_once()


@pytest.mark.parametrize("kind", HANDLES)
def test_processes_whose_waiters_were_cancelled_delay_nobody(valkey: ValkeyServer, kind: str) -> None:
    with RedisStore.from_url(valkey.url) as store:
        waited = Waited(store, kind)

        async def cancel_waiters() -> None:
            """Let two tasks of each process wait, and cancel them all."""
            async with AsyncExitStack() as stack:
                stores = [
                    await stack.enter_async_context(await AsyncRedisStore.from_url(valkey.url))
                    for _ in range(PROCESSES)
                ]
                acquiring = [ASYNC_HANDLES[kind](store)(timeout=60) for _ in range(2) for store in stores]
                waiting = [asyncio.ensure_future(one) for one in acquiring]
                for store in stores:
                    await parked(store, 2)
                assert await asyncio.to_thread(waited.waiting) == PROCESSES
                for task in waiting:
                    task.cancel()
                await asyncio.wait(waiting)
                assert all(task.cancelled() for task in waiting)
                assert [lines_of(store) for store in stores] == [{}] * PROCESSES

        asyncio.run(cancel_waiters())
        assert waited.waiting() == 0
        assert waited.is_free_at_once()


@pytest.mark.parametrize("kind", HANDLES)
def test_processes_whose_waiting_threads_were_interrupted_delay_nobody(
    valkey: ValkeyServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(PROCESSES) as threads:
        stores = [stack.enter_context(RedisStore.from_url(valkey.url)) for _ in range(PROCESSES)]
        waited = Waited(stores[0], kind)

        def interrupted(store: RedisStore) -> None:
            park = store.wakeups.park

            def until_ctrl_c(place: Place, due: float, _: float, offer: Offer | None = None) -> bool:
                park(place, due, store.clock.now() + 0.1, offer)
                raise KeyboardInterrupt

            monkeypatch.setattr(store.wakeups, "park", until_ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                HANDLES[kind](store)(timeout=60)

        list(threads.map(interrupted, stores[1:]))
        assert waited.waiting() == 0
        assert waited.is_free_at_once()


def test_the_next_process_gets_a_lock_that_was_left_to_a_cancelled_waiter_by_one_message(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel the first of two processes before it can take the free lock. Nothing but a message wakes the other one."""
    monkeypatch.setattr("segmented.plans.line.AHEAD_SECONDS", 600.0)
    monkeypatch.setattr(LockClaim, "look_seconds", 600.0)

    async def body() -> int:
        with RedisStore.from_url(valkey.url) as holding, ScriptCount(holding.client, "left") as scripts:
            first, second = [await AsyncRedisStore.from_url(valkey.url) for _ in range(2)]
            async with first, second:
                held = Lock(holding, "left", ttl=600).acquire(timeout=0)
                waiting = []
                for store in (first, second):
                    waiting.append(asyncio.ensure_future(AsyncLock(store, "left", ttl=60).acquire(timeout=60)))
                    await parked(store, 1)
                for known in (LeaveLine("left", "nobody"), ReleaseLock("left", "nobody")):  # the server has the scripts
                    holding.execute(known)
                held.release()
                waiting[0].cancel()  # before the event loop can read the message
                before = scripts()
                async with asyncio.timeout(60):
                    await asyncio.wait([waiting[0]])
                    lease = await waiting[1]
                found = scripts() - before
                await lease.release()
                return found

    assert asyncio.run(body()) == 4  # the first one leaves, and undoes by a command and a script; the second acquires


def test_a_waiter_that_others_of_its_process_outlast_leaves_their_place(valkey: ValkeyServer) -> None:
    async def body(waited: Waited) -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            waiting = [asyncio.ensure_future(ASYNC_HANDLES["lock"](store)(timeout=60)) for _ in range(2)]
            await parked(store, 2)
            since = waited.places()
            waiting[1].cancel()
            await asyncio.wait([waiting[1]])
            assert waited.places() == since
            waiting[0].cancel()
            await asyncio.wait([waiting[0]])
            assert waited.places() == []

    with RedisStore.from_url(valkey.url) as store:
        asyncio.run(body(Waited(store, "lock")))


def test_a_process_that_waits_again_keeps_its_place_although_its_leaving_arrives_late(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store, RedisStore.from_url(valkey.url) as late:
        waited = Waited(store, "lock")
        leaving: list[Operation[Any]] = []
        execute = late.execute

        def held_up(operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
            if isinstance(operation, LeaveLine):
                leaving.append(operation)
                raise StoreUnavailable
            return execute(operation, deadline=deadline)

        late.execute = held_up  # type: ignore[method-assign]  # what leaves the line is slow
        with pytest.raises(AcquireTimeout):
            HANDLES["lock"](late)(timeout=0.05)
        waiter = threading.Thread(target=lambda: HANDLES["lock"](late)(timeout=60).release())
        waiter.start()
        wait_until(lambda: waited.waiting() == 2)
        assert [execute(leaving[0]) for _ in range(2)] == [True, False]
        assert waited.waiting() == 1
        waited.give_back()
        waiter.join(30)
        assert not waiter.is_alive()


def test_a_cancelled_hand_over_takes_its_process_out_of_the_line(proxy: RedisProxy, valkey: ValkeyServer) -> None:
    """The attempt that the releaser makes for a waiter finds the lock taken, and the waiter has been cancelled."""
    with RedisStore.from_url(valkey.url) as store:
        name = "handed"

        async def body() -> None:
            async with await AsyncRedisStore.from_url(proxy.url) as ours:
                lock = AsyncLock(ours, name, ttl=60)
                held = await lock.acquire(timeout=0)
                waiter = asyncio.ensure_future(lock.acquire(timeout=60))
                await parked(ours, 1)
                proxy.hold_next(b"EVAL|DELIFEQ")
                releaser = asyncio.ensure_future(held.release())
                assert await asyncio.to_thread(proxy.holding.wait, 30)
                waiter.cancel()
                await asyncio.wait([waiter])
                store.client.set(lock_keys(name).lock, "somebody else's", px=60_000)
                proxy.let_go()
                await asyncio.wait([releaser])

        asyncio.run(body())
        assert store.client.zcard(lock_keys(name).line) == 0


def test_a_timed_out_wait_ends_although_what_leaves_the_line_gets_no_answer() -> None:
    class Falters(MemoryStore):
        def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
            if isinstance(operation, (LeaveLine, LeavePoolLine)):
                message = "no answer"
                raise StoreUnavailable(message)
            return super().execute(operation, deadline=deadline)

    lock = Lock(Falters(), "door", ttl=60)
    lock.acquire()
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0.05)

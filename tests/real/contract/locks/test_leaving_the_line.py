"""What takes a process out of the line, on a server: it wakes the next one, and harms nobody when it comes late."""

import asyncio
import threading
from math import inf
from typing import Any, TypeVar

import pytest

from segmented import AcquireTimeout, AsyncLock, AsyncRedisStore, Lock, RedisStore, StoreUnavailable
from segmented.keys import lock_keys
from segmented.locks.lock import LockClaim
from segmented.protocol import LeaveLine, Operation
from segmented.servers import ValkeyServer
from tests.support.contract.parking import parked, wait_until
from tests.support.proxy import RedisProxy

AnswerT = TypeVar("AnswerT")
SOON = 120.0


def test_the_next_process_gets_a_lock_left_to_a_cancelled_waiter_by_one_message(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel the first of two processes before it can take the free lock. Nothing but a message wakes the other one."""
    monkeypatch.setattr("segmented.plans.line.AHEAD_SECONDS", 600.0)
    monkeypatch.setattr(LockClaim, "look_seconds", 600.0)

    async def body() -> None:
        with RedisStore.from_url(valkey.url) as holding:
            first, second = [await AsyncRedisStore.from_url(valkey.url) for _ in range(2)]
            async with first, second:
                held = Lock(holding, "left", ttl=600).acquire(timeout=0)
                waiting = []
                for store in (first, second):
                    waiting.append(asyncio.ensure_future(AsyncLock(store, "left", ttl=600).acquire(timeout=600)))
                    await parked(store, 1)
                held.release()
                waiting[0].cancel()  # before the event loop can read the message
                async with asyncio.timeout(SOON):
                    await asyncio.wait([waiting[0]])
                    await (await waiting[1]).release()

    asyncio.run(body())


def test_a_process_that_waits_again_keeps_its_place_although_its_leave_arrives_late(valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store, RedisStore.from_url(valkey.url) as late:
        held = Lock(store, "door", ttl=600).acquire(timeout=0)
        lock, line = Lock(late, "door", ttl=600), lock_keys("door").line
        leaving: list[Operation[Any]] = []
        execute = late.execute

        def held_up(operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
            if isinstance(operation, LeaveLine):
                leaving.append(operation)
                raise StoreUnavailable
            return execute(operation, deadline=deadline)

        late.execute = held_up  # type: ignore[method-assign]  # what leaves the line is slow
        with pytest.raises(AcquireTimeout):
            lock.acquire(timeout=0.05)
        waiter = threading.Thread(target=lambda: lock.acquire(timeout=600).release())
        waiter.start()
        wait_until(lambda: store.client.zcard(line) == 2)
        assert [execute(leaving[0]) for _ in range(2)] == [True, False]
        assert store.client.zcard(line) == 1
        held.release()
        waiter.join(SOON)
        assert not waiter.is_alive()


def test_a_cancelled_hand_over_takes_its_process_out_of_the_line(proxy: RedisProxy, valkey: ValkeyServer) -> None:
    """The attempt that the releaser makes for a waiter finds the lock taken, and the waiter has been cancelled."""
    with RedisStore.from_url(valkey.url) as store:

        async def body() -> None:
            async with await AsyncRedisStore.from_url(proxy.url) as ours:
                lock = AsyncLock(ours, "handed", ttl=600)
                held = await lock.acquire(timeout=0)
                waiter = asyncio.ensure_future(lock.acquire(timeout=600))
                await parked(ours, 1)
                proxy.hold_next(b"EVAL|DELIFEQ")
                releaser = asyncio.ensure_future(held.release())
                assert await asyncio.to_thread(proxy.holding.wait, SOON)
                waiter.cancel()
                await asyncio.wait([waiter])
                store.client.set(lock_keys("handed").lock, "somebody else's", px=600_000)
                proxy.let_go()
                await asyncio.wait([releaser])

        asyncio.run(body())
        assert store.client.zcard(lock_keys("handed").line) == 0

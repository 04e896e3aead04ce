"""Hand-overs end now and then, so that waiters of other processes get their turn; a failure is told to its owner."""

from __future__ import annotations

import asyncio
import threading
import time
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from segmented import AsyncLock, AsyncPool, AsyncRedisStore, Lock, Pool, RedisStore
from segmented.errors import AcquireTimeout, OrderMismatch, OrderUnknown
from segmented.keys import lock_keys, shard_keys
from segmented.locks.lease_state import trusted_until
from segmented.protocol import AcquireLock
from segmented.stock import AsyncGrant, Grant
from tests.real.contract.locks import test_hand_over
from tests.real.contract.locks.test_hand_over import HURRIED, SOON, Spy, offers, wait_for_one
from tests.support.contract.parking import wait_until

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

rare_looks = test_hand_over.rare_looks
WAITERS = 20
HANDED_ON_TIME = [(inf, 19), (0.0, 0)]
"""Seconds that a row of hand-overs may last -> hand-overs of 20: sixteen, one message, three; or messages only."""


@pytest.mark.parametrize(("seconds", "count"), HANDED_ON_TIME)
def test_of_twenty_releases_the_seventeenth_or_one_too_late_is_a_message_to_all(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, seconds: float, count: int
) -> None:
    monkeypatch.setattr("segmented.plans.line.HANDING_SECONDS", seconds)
    lock, spy = Lock(store, "door", ttl=60), Spy(store)
    first = lock.acquire(timeout=30)
    waiters = [threading.Thread(target=lambda: lock.acquire(timeout=60).release()) for _ in range(WAITERS)]
    for waiter in waiters:
        waiter.start()
    wait_until(lambda: offers(store) == WAITERS)
    first.release()
    for waiter in waiters:
        waiter.join(SOON)
    assert spy.count == count
    lock.acquire(timeout=0).release()


@pytest.mark.parametrize(("seconds", "count"), HANDED_ON_TIME)
def test_of_twenty_releases_of_tasks_the_seventeenth_or_one_too_late_is_a_message_to_all(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch, seconds: float, count: int
) -> None:
    monkeypatch.setattr("segmented.plans.line.HANDING_SECONDS", seconds)

    async def run() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            lock, spy = AsyncLock(store, "door", ttl=60), Spy(store)
            first = await lock.acquire(timeout=30)

            async def visit() -> None:
                await (await lock.acquire(timeout=60)).release()

            waiters = [asyncio.create_task(visit()) for _ in range(WAITERS)]
            await asyncio.to_thread(wait_until, lambda: offers(store) == WAITERS)
            await first.release()
            await asyncio.gather(*waiters)
            assert spy.count == count
            await (await lock.acquire(timeout=0)).release()

    asyncio.run(run())


def test_a_lock_handed_to_a_task_whose_deadline_has_come_is_free_again(valkey: ValkeyServer) -> None:
    async def run() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            link: Any = store._link  # noqa: SLF001  # looks behind the store
            lock, given_up, free = AsyncLock(store, "door", ttl=60), asyncio.Event(), link.free

            async def free_late(*arguments: Any, where: str, deadline: float) -> Any:  # noqa: ANN401  # passed on
                await given_up.wait()
                return await free(*arguments, where=where, deadline=deadline)

            async def wait() -> None:
                with pytest.raises(AcquireTimeout):
                    await lock.acquire(timeout=HURRIED)
                given_up.set()

            first = await lock.acquire(timeout=30)
            waiter = asyncio.create_task(wait())
            await wait_for_one(store)
            link.free = free_late
            async with asyncio.timeout(SOON):
                await asyncio.gather(first.release(), waiter)
            await (await lock.acquire(timeout=0)).release()

    asyncio.run(run())


class Slow:
    """Notes the time at which a hand-over is sent, a fifth of a second before it goes out."""

    def __init__(self, store: RedisStore | AsyncRedisStore) -> None:
        self._clock = store.clock
        self.asked_at: list[float] = []

    def __call__(self) -> None:
        self.asked_at.append(self._clock.now())
        time.sleep(0.2)


def test_a_lease_that_was_handed_over_is_trusted_from_before_it_was_asked_for(store: RedisStore) -> None:
    lock, slow = Lock(store, "door", ttl=60), Slow(store)
    Spy(store, before=slow)
    first = lock.acquire(timeout=30)
    trusted: list[float] = []
    waiter = threading.Thread(target=lambda: trusted.append(lock.acquire(timeout=60).trusted_until))
    waiter.start()
    wait_until(lambda: offers(store) == 1)
    first.release()
    waiter.join(SOON)
    assert len(slow.asked_at) == len(trusted) == 1
    assert trusted[0] <= trusted_until(slow.asked_at[0], 60_000)


def test_a_lease_that_was_handed_to_a_task_is_trusted_from_before_it_was_asked_for(valkey: ValkeyServer) -> None:
    async def run() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            lock, slow = AsyncLock(store, "door", ttl=60), Slow(store)
            Spy(store, before=slow)
            first = await lock.acquire(timeout=30)
            waiter = asyncio.create_task(lock.acquire(timeout=60).__aenter__())
            await wait_for_one(store)
            await first.release()
            lease = await waiter
            assert len(slow.asked_at) == 1
            assert lease.trusted_until <= trusted_until(slow.asked_at[0], 60_000)
            await lease.release()

    asyncio.run(run())


def test_an_attempt_that_was_refused_is_told_to_its_waiter_and_not_to_whoever_released(store: RedisStore) -> None:
    pool, spy = Pool(store, "ticket"), Spy(store)
    pool.open(stock=5, segments=1)
    first = pool.grant("a", timeout=0)
    assert isinstance(first, Grant)
    found: list[object] = []

    def wait() -> None:
        with pytest.raises(OrderMismatch):
            found.append(pool.grant("b", timeout=60))
        found.append("refused")

    waiter = threading.Thread(target=wait)
    waiter.start()
    wait_until(lambda: offers(store) == 1)
    pool.reserve("b", quantity=2)
    first.confirm()
    waiter.join(SOON)
    assert (spy.count, found) == (1, ["refused"])


def test_a_release_that_was_refused_is_told_and_the_waiter_behind_it_waits_on(store: RedisStore) -> None:
    pool, spy = Pool(store, "ticket", ttl=HURRIED), Spy(store)
    pool.open(stock=5, segments=1)
    pool.reserve("other")  # a pool that lost all its records is frozen
    first = pool.grant("a", timeout=0)
    assert isinstance(first, Grant)
    found: list[object] = []
    waiter = threading.Thread(target=lambda: found.append(pool.grant("b", timeout=60)))
    waiter.start()
    wait_until(lambda: offers(store) == 1)
    store.client.hdel(shard_keys("ticket").orders, "a")
    with pytest.raises(OrderUnknown):
        first.confirm()
    waiter.join(SOON)
    assert spy.count == 1
    assert isinstance(found[0], Grant)


def test_what_was_refused_is_told_to_its_own_task(valkey: ValkeyServer) -> None:
    async def run() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            pool, spy = AsyncPool(store, "ticket"), Spy(store)
            await pool.open(stock=5, segments=1)
            first = await pool.grant("a", timeout=0)
            assert isinstance(first, AsyncGrant)
            waiter = asyncio.create_task(pool.grant("b", timeout=60).__aenter__())
            await wait_for_one(store)
            await pool.reserve("b", quantity=2)
            await store.client.hdel(shard_keys("ticket").orders, "a")
            with pytest.raises(OrderUnknown):
                await first.confirm()
            with pytest.raises(OrderMismatch):
                await waiter
            assert spy.count == 1

    asyncio.run(run())


def test_a_release_while_the_only_waiter_is_out_trying_makes_it_try_again(store: RedisStore) -> None:
    lock, link = Lock(store, "door", ttl=60), store._link  # noqa: SLF001  # looks behind the store
    first = lock.acquire(timeout=30)
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.append(lock.acquire(timeout=60).fencing_token))
    waiter.start()
    wait_until(lambda: offers(store) == 1)
    perform, has_answer, may_go_on = link.perform, threading.Event(), threading.Event()

    def perform_late(operation: Any, *, deadline: float) -> Any:  # noqa: ANN401  # passed on
        answer = perform(operation, deadline=deadline)
        if isinstance(operation, AcquireLock):
            has_answer.set()
            may_go_on.wait(SOON)
        return answer

    link.perform = perform_late  # type: ignore[assignment,method-assign]  # an answer that is long on its way
    store.wakeups.signal(lock_keys("door").freed)
    assert has_answer.wait(SOON)
    first.release()
    may_go_on.set()
    waiter.join(SOON)
    assert len(found) == 1


def test_a_release_while_the_only_task_that_waits_is_out_trying_makes_it_try_again(valkey: ValkeyServer) -> None:
    async def run() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            lock, link = AsyncLock(store, "door", ttl=60), store._link  # noqa: SLF001  # looks behind the store
            first = await lock.acquire(timeout=30)
            waiter = asyncio.create_task(lock.acquire(timeout=60).__aenter__())
            await wait_for_one(store)
            perform, has_answer, may_go_on = link.perform, asyncio.Event(), asyncio.Event()

            async def perform_late(operation: Any, *, deadline: float) -> Any:  # noqa: ANN401  # passed on
                answer = await perform(operation, deadline=deadline)
                if isinstance(operation, AcquireLock):
                    has_answer.set()
                    await may_go_on.wait()
                return answer

            link.perform = perform_late  # type: ignore[assignment,method-assign]  # an answer that is long on its way
            store.wakeups.signal(lock_keys("door").freed)
            async with asyncio.timeout(SOON):
                await has_answer.wait()
                await first.release()
                may_go_on.set()
                lease = await waiter
            await lease.release()

    asyncio.run(run())

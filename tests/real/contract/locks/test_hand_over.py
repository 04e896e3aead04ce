"""Hand-over on Redis: a release makes the next local waiter's attempt in the same round trip, and loses nothing."""

import asyncio
import threading
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from segmented import AsyncLock, AsyncPool, AsyncRedisStore, Lock, Pool, RedisStore
from segmented.errors import OrderMismatch, OrderUnknown, StoreUnavailable
from segmented.keys import shard_keys
from segmented.locks.lock import LockClaim
from segmented.servers import ValkeyServer
from segmented.stock import AsyncGrant, Grant
from tests.support.contract.parking import lines_of, wait_until

SOON = 120.0
HURRIED = 12.0
"""Seconds of a wait that is to time out, but not before a machine that stood still has gone on."""


@pytest.fixture(autouse=True)
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parked waiter does not look by itself: it has its offer until somebody frees what it waits for."""
    monkeypatch.setattr(LockClaim, "look_seconds", 600.0)
    monkeypatch.setattr("segmented.stock.plans.GONE_SECONDS", 600.0)


class Spy:
    """Watches a store's hand-overs, and does something just before each."""

    def __init__(self, store: Any, before: Callable[[], object] = lambda: None) -> None:  # noqa: ANN401  # of either colour
        self.count = 0
        link = store._link  # noqa: SLF001  # looks behind the store
        self._free = link.free
        self._before = before
        link.free = self.free if isinstance(store, RedisStore) else self.free_async

    def free(self, *arguments: Any, where: str, deadline: float) -> Any:  # noqa: ANN401  # passed on
        self.count += 1
        self._before()
        return self._free(*arguments, where=where, deadline=deadline)

    async def free_async(self, *arguments: Any, where: str, deadline: float) -> Any:  # noqa: ANN401  # passed on
        self.count += 1
        self._before()
        return await self._free(*arguments, where=where, deadline=deadline)


def offers(store: RedisStore | AsyncRedisStore) -> int:
    """Count the waiters of a store who are parked, and have left their attempts."""
    return sum(place.offer is not None for line in lines_of(store).values() for place in line.parked)


def test_a_release_acquires_for_the_next_waiter_in_the_same_round_trip(store: RedisStore) -> None:
    lock, spy = Lock(store, "door", ttl=60), Spy(store)
    first = lock.acquire(timeout=120)
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.append(lock.acquire(timeout=60).fencing_token))
    waiter.start()
    wait_until(lambda: offers(store) >= 1)
    first.release()
    waiter.join(SOON)
    assert (spy.count, len(found)) == (1, 1)
    assert found[0] > first.fencing_token


def test_an_order_handed_over_at_its_deadline_keeps_its_units_for_the_repeat(store: RedisStore) -> None:
    pool = Pool(store, "ticket", ttl=600, hold=600)
    pool.open(stock=5, segments=1)
    pool.grant("warm", timeout=0).confirm()  # type: ignore[union-attr]  # and now the server has the script
    given_up = threading.Event()
    spy = Spy(store, before=lambda: given_up.wait(SOON))
    first = Pool(store, "ticket", ttl=60).grant("a", timeout=0)
    assert isinstance(first, Grant)

    def wait() -> None:
        with pytest.raises(StoreUnavailable):
            pool.grant("b", timeout=HURRIED)
        given_up.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    wait_until(lambda: offers(store) >= 1)
    first.confirm()
    waiter.join(SOON)
    assert given_up.is_set()
    assert spy.count == 1
    again = pool.grant("b", timeout=SOON)
    assert isinstance(again, Grant)
    assert again.replay
    again.confirm()
    assert pool.state().confirmed == 3
    assert pool.audit().is_clean


async def wait_for_one(store: AsyncRedisStore) -> None:
    async with asyncio.timeout(SOON):
        while not offers(store):  # noqa: ASYNC110  # a line has no event for it
            await asyncio.sleep(0.005)


def test_a_task_that_is_cancelled_while_it_is_handed_the_lock_leaves_it_free(valkey: ValkeyServer) -> None:
    async def run() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            lock = AsyncLock(store, "door", ttl=60)
            first = await lock.acquire(timeout=120)
            waiter = asyncio.create_task(lock.acquire(timeout=60).__aenter__())
            await wait_for_one(store)
            spy = Spy(store, before=waiter.cancel)
            await first.release()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert spy.count == 1
            lease = await lock.acquire(timeout=0)
            await lease.release()

    asyncio.run(run())


def test_an_order_that_is_cancelled_while_it_is_granted_gives_its_units_back(valkey: ValkeyServer) -> None:
    async def run() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            pool = AsyncPool(store, "ticket")
            await pool.open(stock=5, segments=1)
            first = await pool.grant("a", timeout=0)
            assert isinstance(first, AsyncGrant)

            async def wait() -> object:
                return await pool.grant("b", timeout=60)

            waiter = asyncio.create_task(wait())
            await wait_for_one(store)
            spy = Spy(store, before=waiter.cancel)
            await first.confirm()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert spy.count == 1
            state = await pool.state()
            assert (state.available, state.reserved, state.confirmed) == (4, 0, 1)
            assert (await pool.audit()).is_clean
            next_one = await pool.grant("c", timeout=0)
            assert isinstance(next_one, AsyncGrant)

    asyncio.run(run())


WAITERS = 20


HANDED_ON_TIME = [(inf, 19), (0.0, 0)]


@pytest.mark.parametrize(("seconds", "count"), HANDED_ON_TIME)
def test_of_twenty_releases_the_seventeenth_or_one_too_late_is_a_message_to_all(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, seconds: float, count: int
) -> None:
    monkeypatch.setattr("segmented.plans.line.HANDING_SECONDS", seconds)
    lock, spy = Lock(store, "door", ttl=60), Spy(store)
    first = lock.acquire(timeout=120)
    waiters = [threading.Thread(target=lambda: lock.acquire(timeout=60).release()) for _ in range(WAITERS)]
    for waiter in waiters:
        waiter.start()
    wait_until(lambda: offers(store) == WAITERS)
    first.release()
    for waiter in waiters:
        waiter.join(SOON)
    assert spy.count == count
    lock.acquire(timeout=0).release()


def test_a_refused_attempt_is_told_to_its_waiter_and_not_to_the_releaser(store: RedisStore) -> None:
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

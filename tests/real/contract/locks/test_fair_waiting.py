"""Waiting for a fair lock, in two processes' worth of stores: in order, woken one by one, and passed over when gone."""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import pytest

from segmented.clock import SystemClock
from segmented.keys import fair_keys
from segmented.locks import Lease
from segmented.locks.fair import AsyncFairLock, FairClaim, FairLock, FairTry
from segmented.protocol.fair import FairTimes
from segmented.protocol.wire import text
from segmented.stores.redis import AsyncRedisStore
from tests.fixtures.stores import FEW_REDIS, Side, make_side
from tests.support.contract.parking import has_come_to_rest, lines_of, parked, wait_until
from tests.support.proxy import RedisProxy

PATIENCE = 600.0
SOON = 120.0
"""A bound for what takes milliseconds, generous on a busy machine."""
SLOW = FairTimes(presence_ms=1_800_000, look_ms=600_000, claim_ms=600_000)
"""A waiter that was not woken, or waits for one that is gone, waits for far longer than the test."""


@pytest.fixture(autouse=True)
def slow_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no claim lapse and no waiter look by itself, so that a machine that stands still changes no order."""
    let_times_be(SLOW, monkeypatch)


def let_times_be(times: FairTimes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.fair.FairTry", partial(FairTry, times=times))
    monkeypatch.setattr("segmented.locks.fair.FairClaim", partial(FairClaim, times=times))


@pytest.fixture(params=FEW_REDIS, ids=str)
def two_sides(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on one server."""
    first, second = (make_side(request.param, SystemClock(), valkey_url) for _ in range(2))
    yield first, second
    first.close()
    second.close()


def made(side: Side, name: str, *, ttl: float = 60.0, renew: bool = False) -> FairLock:
    return side.made(
        lambda store: FairLock(store, name, ttl=ttl, renew=renew),
        lambda store: AsyncFairLock(store, name, ttl=ttl, renew=renew),
    )


def start_waiting(side: Side, lock: FairLock, *, timeout: float = PATIENCE) -> Future[Lease]:
    """Start an acquire that finds the lock taken, and return once it has come to rest."""
    waiters = sum(len(line) for line in lines_of(side.store).values())
    call = side.start(lambda: lock.acquire(timeout=timeout))
    wait_until(lambda: has_come_to_rest(side.store, waiters + 1) or call.done())
    return call


def test_the_order_is_one_over_all_processes(two_sides: tuple[Side, Side]) -> None:
    name = two_sides[0].name("lock")
    locks = [made(side, name) for side in two_sides]
    held = locks[0].acquire(timeout=0)
    waiters = [start_waiting(two_sides[index % 2], locks[index % 2]) for index in range(6)]
    for index, waiter in enumerate(waiters):
        held.release()
        held = waiter.result(SOON)
        assert not any(later.done() for later in waiters[index + 1 :])
    held.release()


def test_d12_a_wait_that_is_cancelled_gives_its_place_up_or_hands_the_lock_on(valkey_url: str) -> None:
    chance = random.Random(12)

    async def body() -> None:
        async with await AsyncRedisStore.from_url(valkey_url) as store:
            lock = AsyncFairLock(store, "cancelled-fair")
            held = await lock.acquire()
            waiters = []
            for index in range(30):
                waiters.append(asyncio.ensure_future(lock.acquire()))
                await parked(store, index + 1)
            for waiter in waiters[:10]:  # at rest
                waiter.cancel()
            await asyncio.wait(waiters[:10])
            for index in range(10, 30, 2):
                await held.release()
                await asyncio.sleep(chance.random() * 0.002)
                waiters[index].cancel()  # about when its turn comes
                await asyncio.wait(waiters[index : index + 1])
                if not waiters[index].cancelled():
                    await waiters[index].result().release()
                held = await asyncio.wait_for(waiters[index + 1], SOON)
            await held.release()
            assert lines_of(store) == {}
            keys = fair_keys("cancelled-fair")
            assert [text(key) for key in await store.client.keys(f"{keys.lock}*")] == [keys.fence]

    asyncio.run(body())


def test_d9_a_waiter_whose_subscription_broke_and_was_made_again_has_its_place(
    far_side: Side, proxy: RedisProxy, plain_redis_side: Side
) -> None:
    name = far_side.name("lock")
    near, server = plain_redis_side, plain_redis_side.raw()
    held = made(near, name).acquire(timeout=0)
    first = start_waiting(far_side, made(far_side, name))
    second, third = (start_waiting(near, made(near, name)) for _ in range(2))
    turns = f"{fair_keys(name).turn}:*"
    proxy.vanish()
    wait_until(lambda: len(server.pubsub_channels(turns)) == 2)
    held.release()
    held = second.result(SOON)  # the first could not be reached
    proxy.come_back()
    wait_until(lambda: len(server.pubsub_channels(turns)) == 3 or first.done())
    wait_until(lambda: server.zrange(fair_keys(name).queue, 0, -1, withscores=True)[0][1] == 1.0)
    held.release()
    held = first.result(SOON)
    assert not third.done()
    held.release()
    third.result(SOON).release()

"""Waiting for several names at once: woken, in order, and nothing left behind."""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
import redis

from segmented import protocol as op
from segmented.errors import AcquireTimeout
from segmented.keys import lock_keys
from segmented.locks import AsyncMultiLock, MultiLock
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.support.contract.bodies import Renewals
from tests.support.contract.locks.shared import LONG, PATIENCE, SOON, new_names, several, start_waiting
from tests.support.contract.parking import has_come_to_rest, lines_of, parked, wait_until

if TYPE_CHECKING:
    from tests.fixtures.stores import Side
    from tests.support.proxy import RedisProxy


def test_it_waits_for_what_is_held_and_is_woken(waiting_side: Side) -> None:
    names = new_names(waiting_side)
    held = [waiting_side.lock(name, ttl=LONG).acquire(timeout=0) for name in names]
    (waiter,) = start_waiting(waiting_side, several(waiting_side, names))
    for lease in reversed(held):
        lease.release()
    waiter.result(SOON).release()
    assert lines_of(waiting_side.store) == {}


def test_while_it_waits_what_it_holds_is_kept_alive(waiting_side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.multi.RENEWALS_PER_TTL", LONG / 0.3)  # and a busy machine is never late
    names = new_names(waiting_side)
    held = waiting_side.lock(names[2], ttl=LONG).acquire(timeout=0)
    waiter = waiting_side.start(lambda: several(waiting_side, names, ttl=LONG).acquire(timeout=PATIENCE))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1))
    wait_until(Renewals(waiting_side.execute, waiting_side.clock, names[0]).has_two)
    assert not waiter.done()
    held.release()
    lease = waiter.result(SOON)
    assert lease.remaining() > LONG / 2
    lease.release()


def test_the_deadline_is_one_for_all_names_and_nothing_is_left_behind(waiting_side: Side) -> None:
    names, began = new_names(waiting_side), time.monotonic()
    waiting_side.execute(op.AcquireLock(names[0], "dead", 300))
    second = waiting_side.lock(names[1], ttl=LONG).acquire(timeout=0)
    with pytest.raises(AcquireTimeout, match=f"^lock '{names[1]}' was not free within 1.2 s$"):
        several(waiting_side, names).acquire(timeout=1.2)
    assert time.monotonic() - began >= 1.2
    for name in (names[0], names[2]):
        waiting_side.lock(name, ttl=LONG).acquire(timeout=0).release()
    second.release()


def test_overlapping_sets_asked_for_in_any_order_do_not_deadlock(redis_side: Side) -> None:
    names, chance = new_names(redis_side, "abcdef"), random.Random(7)
    inside: set[str] = set()
    overlaps: list[str] = []

    def visit(wanted: list[str]) -> None:
        with several(redis_side, wanted).acquire(timeout=PATIENCE):
            overlaps.extend(inside.intersection(wanted))
            inside.update(wanted)
            time.sleep(0.001)
            inside.difference_update(wanted)

    visits = [partial(visit, chance.sample(names, chance.randint(1, 4))) for _ in range(60)]
    for visitor in [redis_side.start(one) for one in visits]:
        visitor.result(PATIENCE)
    assert overlaps == []
    assert lines_of(redis_side.store) == {}


@pytest.mark.parametrize("waits", [False, True])
def test_d11_an_acquire_cancelled_in_flight_leaves_no_key(proxy: RedisProxy, valkey_url: str, *, waits: bool) -> None:
    names = [f"multi-cancelled-{waits}-{letter}" for letter in "abc"]

    async def body() -> None:
        async with (
            await AsyncRedisStore.from_url(proxy.url) as store,
            await AsyncRedisStore.from_url(valkey_url) as near,
        ):
            lock = AsyncMultiLock(store, names, ttl=LONG)
            await (await lock.acquire(timeout=0)).release()
            held = await AsyncMultiLock(near, names[2:], ttl=LONG).acquire(timeout=0) if waits else None
            if not waits:
                proxy.hold(b"EVAL")
            task = asyncio.ensure_future(lock.acquire(timeout=PATIENCE))
            if waits:
                await parked(store, 1)
            else:
                assert await asyncio.to_thread(proxy.holding.wait, SOON)
            task.cancel()
            await asyncio.sleep(0)
            proxy.let_go()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lines_of(store) == {}
            if held is not None:
                await held.release()

    asyncio.run(body())
    with redis.Redis.from_url(valkey_url) as server:
        assert server.exists(*(lock_keys(name).lock for name in names)) == 0


def test_e1_and_a7_lost_replies_are_no_loss(proxy: RedisProxy, valkey_url: str) -> None:
    names = ["multi-lost-reply-a", "multi-lost-reply-b"]
    with RedisStore.from_url(proxy.url) as store:
        lock = MultiLock(store, names, ttl=LONG)
        lock.acquire(timeout=0).release()
        proxy.swallow_replies(1, to=b"EVALSHA")
        lease = lock.acquire(timeout=0)
        assert proxy.swallowed == 1
        proxy.swallow_replies(1, to=b"DELIFEQ|EVALSHA")
        lease.release()  # raises nothing: the lost reply said that it was released
        assert proxy.swallowed == 2
    with redis.Redis.from_url(valkey_url) as server:
        assert server.exists(*(lock_keys(name).lock for name in names)) == 0

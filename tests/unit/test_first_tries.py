"""Calls as a user types them first: each works, or gives one sentence that names the right call."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from segmented import (
    AcquireTimeout,
    AsyncLock,
    AsyncMemoryStore,
    InvalidInput,
    Lock,
    MemoryStore,
    Pool,
    Reserved,
    SoldOut,
)
from segmented.stores.redis import AsyncRedisStore, RedisStore
from segmented.testing import ManualClock

# --- tests without a server ---


def test_a_hold_ends_when_the_test_moves_the_clock() -> None:
    clock = ManualClock()
    pool = Pool(MemoryStore(clock=clock), "poster", hold=60.0)
    pool.open(stock=2, segments=2)
    assert isinstance(pool.reserve("order-1", quantity=2), Reserved)
    assert isinstance(pool.reserve("order-2"), SoldOut)
    clock.advance(61.0)
    assert isinstance(pool.reserve("order-2"), Reserved)


def test_a_wait_moves_a_clock_that_is_auto() -> None:
    clock = ManualClock(auto=True)
    store = MemoryStore(clock=clock)
    Lock(store, "report", ttl=30.0).acquire()
    with pytest.raises(AcquireTimeout):
        Lock(store, "report").acquire(timeout=1.0)
    assert clock.now() == 1_001.0
    Lock(store, "report").acquire(timeout=60.0)
    assert repr(clock) == "ManualClock(1030, auto=True)"


def test_a_wait_of_a_task_moves_a_clock_that_is_auto() -> None:
    async def wait() -> float:
        clock = ManualClock(auto=True)
        store = AsyncMemoryStore(clock=clock)
        await AsyncLock(store, "report", ttl=30.0).acquire()
        await AsyncLock(store, "report").acquire(timeout=60.0)
        return clock.now()

    assert round(asyncio.run(wait()), 2) == 1_030.0


STILL = (
    r"^a wait of 0\.05 s does not end, because the store's clock stands still: create it as ManualClock\(auto=True\)"
)


def test_a_wait_on_a_clock_that_stands_still_says_so() -> None:
    store = MemoryStore(clock=ManualClock())
    Lock(store, "report").acquire()
    with pytest.raises(InvalidInput, match=STILL):
        Lock(store, "report").acquire(timeout=0.05)


def test_a_wait_of_a_task_on_a_clock_that_stands_still_says_so() -> None:
    async def wait() -> None:
        store = AsyncMemoryStore(clock=ManualClock())
        await AsyncLock(store, "report").acquire()
        await AsyncLock(store, "report").acquire(timeout=0.05)

    with pytest.raises(InvalidInput, match=STILL):
        asyncio.run(wait())


@pytest.mark.parametrize("kind", [MemoryStore, AsyncMemoryStore])
@pytest.mark.parametrize(("clock", "what"), [(time.monotonic, "a function"), (5, "int")])
def test_a_clock_that_is_merely_callable_is_refused_at_once(kind: Any, clock: Any, what: str) -> None:  # noqa: ANN401  # any
    sentence = (
        rf"^a clock is an object with a method now\(\), such as ManualClock\(\) of segmented.testing, not {what}$"
    )
    with pytest.raises(InvalidInput, match=sentence):
        kind(clock=clock)


def test_a_store_on_a_server_refuses_such_a_clock_too(valkey_url: str) -> None:
    async def connect() -> None:
        await AsyncRedisStore.from_url(valkey_url, clock=time.monotonic)  # type: ignore[arg-type]  # as typed first

    with pytest.raises(InvalidInput, match="not a function"):
        RedisStore.from_url(valkey_url, clock=time.monotonic)  # type: ignore[arg-type]  # as typed first
    with pytest.raises(InvalidInput, match="not a function"):
        asyncio.run(connect())

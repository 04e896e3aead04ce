"""A listener that something ended is started again: no waiter depends on a message that nobody receives."""

import asyncio
import ctypes
import threading
from typing import Final
from uuid import uuid4

import pytest

from segmented import Lock, RedisStore
from segmented.errors import LeaseLost
from segmented.keys import lock_keys
from segmented.locks import AsyncLock, Lease
from segmented.locks.lock import LockClaim
from segmented.servers import ValkeyServer
from segmented.stores.redis import AsyncRedisStore
from tests.support.contract.parking import has_come_to_rest, parked, wait_until

NAME: Final = "segmented-listener"
SOON: Final = 120.0
"""Far less than the time after which a waiter would look by itself."""


@pytest.fixture(autouse=True)
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a message, or a subscription that was made again, wakes a waiter."""
    monkeypatch.setattr(LockClaim, "look_seconds", 600.0)


def listener_tasks() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == NAME]


def test_a_listener_task_that_was_cancelled_is_started_again(valkey_url: str) -> None:
    async def body() -> None:
        async with (
            await AsyncRedisStore.from_url(valkey_url) as store,
            await AsyncRedisStore.from_url(valkey_url) as other,
        ):
            for is_waited_for in (True, False, True):
                name = uuid4().hex
                held = await AsyncLock(other, name, ttl=600).acquire(timeout=0)
                lock = AsyncLock(store, name, ttl=600)
                waiters = [asyncio.ensure_future(lock.acquire(timeout=60))] if is_waited_for else []
                await parked(store, len(waiters))
                for task in listener_tasks():
                    task.cancel()
                    await asyncio.wait([task])
                if not is_waited_for:
                    assert listener_tasks() == []
                    waiters = [asyncio.ensure_future(lock.acquire(timeout=60))]
                async with asyncio.timeout(SOON):
                    while len(listener_tasks()) != 1:  # noqa: ASYNC110  # a task has no event for its beginning
                        await asyncio.sleep(0.01)
                await parked(store, 1)
                await held.release()
                async with asyncio.timeout(SOON):
                    await (await waiters[0]).release()
        async with asyncio.timeout(SOON):
            while listener_tasks():  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.01)

    asyncio.run(body())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_listener_thread_that_died_is_started_again(valkey_url: str, *, is_waited_for: bool) -> None:
    with RedisStore.from_url(valkey_url) as store, RedisStore.from_url(valkey_url) as other:
        before = {thread for thread in threading.enumerate() if thread.name == NAME}
        first = uuid4().hex
        with Lock(other, first, ttl=600).acquire(timeout=0):
            assert Lock(store, first, ttl=600).try_acquire() is None
            begin_to_wait(store, first, [])
            listener = next(thread for thread in threading.enumerate() if thread.name == NAME and thread not in before)
            if not is_waited_for:
                end(listener)
        wait_until(lambda: has_come_to_rest(store, 0))
        name = uuid4().hex
        held, leases = Lock(other, name, ttl=600).acquire(timeout=0), list["Lease"]()
        waiter = begin_to_wait(store, name, leases)
        if is_waited_for:
            end(listener)
            assert not listener.is_alive()
        held.release()
        waiter.join(SOON)
        assert [lease.name for lease in leases] == [name]
        leases[0].release()


def begin_to_wait(store: RedisStore, name: str, leases: list[Lease]) -> threading.Thread:
    """Wait for a lock in a thread, until it is parked."""
    thread = threading.Thread(target=lambda: leases.append(Lock(store, name, ttl=600).acquire(timeout=60)))
    thread.start()
    wait_until(lambda: has_come_to_rest(store, 1))
    return thread


def end(thread: threading.Thread) -> None:
    """Raise SystemExit in the thread, wherever it is, and wait for its end."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    thread.join(SOON)


def test_a_message_in_no_encoding_does_not_end_the_listener(valkey: ValkeyServer, store: RedisStore) -> None:
    lock = Lock(store, "door", ttl=60)
    held = lock.acquire(timeout=120)
    waiting = threading.Thread(target=lambda: lock.acquire(timeout=60).release())
    waiting.start()
    wait_until(lambda: store.client.pubsub_numsub(lock_keys("door").freed)[0][1] > 0)
    store.client.publish(lock_keys("door").freed, b"\xff\xfe")
    other = RedisStore.from_url(valkey.url)
    try:
        other.client.delete(lock_keys("door").lock)
        other.client.publish(lock_keys("door").freed, "freed")
        waiting.join(120)
        assert not waiting.is_alive()
    finally:
        other.close()
    with pytest.raises(LeaseLost):
        held.release()

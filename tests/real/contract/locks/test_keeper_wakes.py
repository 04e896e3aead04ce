"""When the keeper of leases begins, wakes and ends, in both colours: no lease is forgotten, and no keeper lingers."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from math import inf
from typing import Any, Final

import pytest

from segmented import AsyncLock, AsyncMemoryStore, Lease, Lock, MemoryStore, RedisStore
from segmented.locks import keeper, lease_state
from segmented.locks.lease_state import LeaseState
from segmented.protocol import Operation, RenewLock
from segmented.servers import ValkeyServer
from tests.support.contract.parking import wait_until

TTL: Final = 60.0
"""A keeper renews such a lease three times a second here, and a busy machine may keep it from that for a minute."""
LONG: Final = 36_000.0
"""A keeper renews such a lease every three minutes here."""
ASLEEP: Final = 0.1
"""For a keeper's thread that was just begun to fall asleep."""


@pytest.fixture(autouse=True)
def frequent_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the keeper renew a lease often in its life, so that none is lost on a machine that stands still.

    One that is not woken sleeps for longer than a test waits.
    """
    monkeypatch.setattr(lease_state, "RENEWALS_PER_TTL", 200)
    monkeypatch.setattr(keeper, "SLEEP_MAX", 120.0)


def keepers() -> set[threading.Thread]:
    """The keepers that there are: those of other tests' stores may mind leases until they lapse."""
    return {thread for thread in threading.enumerate() if thread.name == "segmented-keeper"}


def keeper_tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task.get_name() == "segmented-keeper"}


def renewed_twice(lease: LeaseState) -> Callable[[], bool]:
    """Return what asks whether the keeper has renewed the lease twice since now."""
    ends = {lease.trusted_until}

    def is_so() -> bool:
        ends.add(lease.trusted_until)
        return len(ends) > 2

    return is_so


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not is_so():  # noqa: ASYNC110  # a task has no event for its end but itself
            await asyncio.sleep(0.002)


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class CrashingStore(MemoryStore):
    """A store whose first renewal ends the thread that asks for it, as an interpreter's end would."""

    crashes = 1

    def execute(self, operation: Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # the operation's own answer
        if isinstance(operation, RenewLock) and self.crashes:
            self.crashes -= 1
            raise SystemExit
        return super().execute(operation, deadline=deadline)


def test_a_short_lease_after_a_long_one_wakes_the_keeper() -> None:
    store, before = MemoryStore(), keepers()
    with Lock(store, "long", ttl=LONG, renew=True).acquire():
        time.sleep(ASLEEP)
        with Lock(store, "short", ttl=TTL, renew=True).acquire() as short:
            assert len(keepers() - before) == 1
            wait_until(renewed_twice(short))
            assert short.is_trusted


@in_a_loop
async def test_a_short_lease_after_a_long_one_wakes_the_keepers_task() -> None:
    store = AsyncMemoryStore()
    async with await AsyncLock(store, "long", ttl=LONG, renew=True).acquire():
        await asyncio.sleep(0)  # it sleeps for the long one
        async with await AsyncLock(store, "short", ttl=TTL, renew=True).acquire() as short:
            await until(renewed_twice(short))
            assert short.is_trusted
            assert len(keeper_tasks()) == 1


def test_after_a_crash_of_the_keeper_the_next_lease_begins_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next lease comes while the thread that crashed has not ended yet."""
    store, held = CrashingStore(), list[Lease]()
    monkeypatch.setattr(
        threading, "excepthook", lambda _: held.append(Lock(store, "next", ttl=TTL, renew=True).acquire())
    )
    first = Lock(store, "first", ttl=TTL, renew=True).acquire()
    wait_until(lambda: bool(held))
    wait_until(renewed_twice(held[0]))
    for lease in (first, *held):
        lease.release()


def in_a_child(look: Callable[[], bool]) -> int:
    """Fork, and return 0 if it is so in the child, which ends at once."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if look() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def renews(store: MemoryStore, name: str) -> bool:
    lease = Lock(store, name, ttl=TTL, renew=True).acquire(timeout=60)
    wait_until(renewed_twice(lease))
    return lease.is_trusted


def test_a_forked_child_renews_its_own_leases_and_the_parent_goes_on_with_its_own() -> None:
    store = MemoryStore()
    with Lock(store, "parents", ttl=TTL, renew=True).acquire() as lease:
        assert in_a_child(lambda: renews(store, "childs")) == 0
        assert lease.is_trusted


def test_a_child_forked_while_the_keeper_was_looked_for_renews_its_leases() -> None:
    store, is_held, may_end = MemoryStore(), threading.Event(), threading.Event()

    def hold() -> None:
        with keeper._guard:  # noqa: SLF001  # the moment in which another thread has it
            is_held.set()
            may_end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    assert in_a_child(lambda: renews(store, "childs")) == 0
    may_end.set()
    thread.join()


def test_twenty_leases_one_after_the_other_have_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    class Noted(threading.Thread):
        def start(self) -> None:
            begun.append(self.name)
            super().start()

    monkeypatch.setattr(threading, "Thread", Noted)
    monkeypatch.setattr(keeper, "LINGER", 60.0)  # more than a busy machine stands still
    lock = Lock(MemoryStore(), "door", ttl=LONG, renew=True)
    for _ in range(20):
        lock.acquire().release()
        time.sleep(0.005)
    assert begun.count("segmented-keeper") == 1


def test_a_thread_finds_out_by_itself_that_its_last_lease_was_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "SLEEP_MAX", 3 * ASLEEP)
    monkeypatch.setattr(keeper, "LINGER", 0.1)
    before = keepers()
    lease = Lock(MemoryStore(), "door", ttl=LONG, renew=True).acquire()
    time.sleep(ASLEEP)
    assert len(keepers() - before) == 1
    lease.release()
    wait_until(lambda: keepers() <= before)


@in_a_loop
async def test_a_task_ends_at_once_when_its_last_lease_was_released() -> None:
    lease = await AsyncLock(AsyncMemoryStore(), "door", ttl=LONG, renew=True).acquire()
    await asyncio.sleep(0)
    (task,) = keeper_tasks()
    await lease.release()
    await until(task.done)


def test_a_keeper_that_was_idle_before_sleeps_while_its_next_lease_wants_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = [0]

    def is_closed(looked_at: object) -> bool:
        looks[0] += looked_at is store
        return False

    monkeypatch.setattr(keeper, "LINGER", 1.0)
    monkeypatch.setattr(keeper, "is_closed", is_closed)
    store, told_at = MemoryStore(), list[int]()
    Lock(store, "first", ttl=0.2).acquire().on_lost(lambda: told_at.append(looks[0]))
    wait_until(lambda: bool(told_at) and looks[0] > told_at[0])  # now it is idle
    with Lock(store, "door", ttl=LONG).acquire() as lease:
        lease.on_lost(lambda: None)
        time.sleep(1.2)  # beyond the end of its idleness
        before = looks[0]
        time.sleep(0.5)
        assert looks[0] - before <= 20  # a keeper that does not sleep looks some thousands of times


def test_the_leases_of_a_closed_store_are_renewed_no_more(valkey: ValkeyServer) -> None:
    store = RedisStore.from_url(valkey.url)
    Lock(store, "door", ttl=0.5, renew=True).acquire(timeout=120)
    store.close()
    with RedisStore.from_url(valkey.url) as other:
        Lock(other, "door", ttl=60).acquire(timeout=30).release()

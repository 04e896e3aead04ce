"""A lease whose handle is dropped: a warning that names the lock, no more renewals, and no release before its end."""

import asyncio
import os
import subprocess
import sys
import warnings
from math import inf
from typing import Any, Final

import pytest
import redis

from segmented import AsyncLock, AsyncMemoryStore, Lock, MemoryStore
from segmented.errors import StoreUnavailable
from segmented.keys import lock_keys
from segmented.locks import AsyncQuorumStore, QuorumStore
from segmented.protocol import Operation, ReleaseLock, RenewLock
from segmented.stores.redis import AsyncRedisStore
from tests.support.contract.locks.kinds import HANDLES, Handles
from tests.support.contract.locks.late_clock import LASTS, LateClock
from tests.support.contract.parking import wait_until

pytestmark = pytest.mark.usefixtures("watched_drops")

LONG: Final = 600.0
SOON: Final = 120.0
TASKS: Final = 50
DROPPED: Final = r"^lease on '{}' was dropped without a release: release it, or use it in a with statement$"

KINDS: Final = [kind for kind in HANDLES if "background" in kind.offers]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)


def dropped(name: str) -> Any:  # noqa: ANN401  # a context manager of pytest's
    return pytest.warns(ResourceWarning, match=DROPPED.format(name))


@pytest.fixture(autouse=True)
def wakeful_keepers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let keepers look at the clock again soon, so that they renew what they still have when the clock is late."""
    monkeypatch.setattr("segmented.locks.keeper.SLEEP_MAX", 0.05)


class NotedStore(MemoryStore):
    """A store that notes what it is asked, and does not answer the first `mute` releases."""

    def __init__(self, mute: int = 0) -> None:
        self.late_clock = LateClock()
        super().__init__(clock=self.late_clock)
        self.mute = mute
        self.asked: list[str] = []

    def execute(self, operation: Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
        if isinstance(operation, ReleaseLock | RenewLock):
            self.asked.append(type(operation).__name__)
        if isinstance(operation, ReleaseLock) and self.mute:
            self.mute -= 1
            raise StoreUnavailable
        return super().execute(operation, deadline=deadline)


# --- every kind ---


@each_kind
def test_a_dropped_lease_warns_and_ends_on_its_own(kind: Handles) -> None:
    clock = LateClock()
    store: Any = MemoryStore(clock=clock)
    if kind.servers > 1:
        store = QuorumStore([MemoryStore(clock=clock) for _ in range(3)], answer_timeout=60.0, clock=clock)
    with dropped("door, door-second" if kind.names > 1 else "door"):
        kind.sync(store, "door", ttl=LASTS, renew=True).acquire()
    clock.come_late()
    (kind.rival_sync or kind.sync)(store, "door", ttl=LASTS).acquire(timeout=SOON).release()


@each_kind
def test_a_dropped_asyncio_lease_warns_and_ends_on_its_own(kind: Handles) -> None:
    async def drop() -> None:
        clock = LateClock()
        store: Any = AsyncMemoryStore(clock=clock)
        if kind.servers > 1:
            stores = [AsyncMemoryStore(clock=clock) for _ in range(3)]
            store = AsyncQuorumStore(stores, answer_timeout=60.0, clock=clock)
        with dropped("door, door-second" if kind.names > 1 else "door"):
            await kind.asyncio(store, "door", ttl=LASTS, renew=True).acquire()
        clock.come_late()
        async with (kind.rival_asyncio or kind.asyncio)(store, "door", ttl=LASTS).acquire(timeout=SOON):
            pass

    asyncio.run(drop())


def test_the_lock_of_a_dropped_lease_stays_until_the_lease_ends() -> None:
    store = NotedStore()
    with dropped("door"):
        Lock(store, "door", ttl=LONG, renew=True).acquire()
    assert Lock(store, "door").try_acquire() is None
    assert store.asked == []


# --- when and where a handle is dropped ---


def test_a_forked_child_that_drops_its_parents_lease_does_not_warn() -> None:
    store = MemoryStore()
    held = [Lock(store, "door", ttl=LONG, renew=True).acquire()]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                held.clear()
            code = 2 if caught else 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    held.pop().release()


def test_the_end_of_the_interpreter_warns_of_a_lease_and_ends_without_an_error(valkey_url: str) -> None:
    program = (
        "from segmented import Lock, RedisStore\n"
        f"store = RedisStore.from_url({valkey_url!r})\n"
        "lease = Lock(store, 'dropped-at-the-end', ttl=30, renew=True).acquire()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0
    assert ended.stderr.count("ResourceWarning: lease on 'dropped-at-the-end' was dropped without a release") == 1
    assert "Traceback" not in ended.stderr


# --- what is left to expire, and what is repeated ---


def test_a_failed_release_is_repeated_after_its_handle_is_gone_without_a_warning() -> None:
    store = NotedStore(mute=1)
    with pytest.raises(StoreUnavailable), Lock(store, "door", ttl=LONG, renew=True).acquire():
        pass
    Lock(store, "door").acquire(timeout=SOON).release()


# --- what is left behind ---


def connections(url: str) -> int:
    with redis.Redis.from_url(url) as server:
        return len(server.client_list())


@pytest.mark.filterwarnings("ignore:lease on 'dropped-tasks-:ResourceWarning")
def test_tasks_that_drop_their_leases_leave_no_lock_no_task_and_no_connection(
    private_valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", LONG)  # one a second, and then no more
    names, before = [f"dropped-tasks-{index}" for index in range(TASKS)], connections(private_valkey_url)

    async def drop() -> None:
        async with await AsyncRedisStore.from_url(private_valkey_url) as store:

            async def take(name: str) -> None:
                await AsyncLock(store, name, ttl=LONG, renew=True).acquire(timeout=LONG)

            await asyncio.gather(*(take(name) for name in names))
            keys = [lock_keys(name).lock for name in names]
            for key in keys:
                await store.client.pexpire(key, 1)  # as their time to live would
            async with asyncio.timeout(SOON):
                while len(asyncio.all_tasks()) > 1 or await store.client.exists(*keys):  # noqa: ASYNC110  # the keeper ends on its own
                    await asyncio.sleep(0.01)

    asyncio.run(drop())
    wait_until(lambda: connections(private_valkey_url) == before)

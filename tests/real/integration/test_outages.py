"""An acquire waits until its own deadline for a server that is away, and takes the lock if it comes back in time."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Final

import pytest
import redis

from segmented import AsyncLock, AsyncRedisStore, Pool
from segmented.errors import InvalidInput, LockUnreachable, StockError, StoreUnavailable
from segmented.keys import lock_keys
from segmented.locks import FairLock, Lock, MultiLock, ReadWriteLock, Semaphore, locked, unreachable
from segmented.locks.dead_letters import Replayed, Work, replay
from segmented.locks.dead_letters_sql import SqlDeadLetters
from segmented.locks.unreachable import UnreachablePolicy
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.fixtures.dead_letters import ids
from tests.support.contract.parking import has_come_to_rest, lines_of, parked, wait_until

LONG: Final = 600.0
WAIT: Final = 1.5
ENDLESS: Final = 600.0
"""Longer than a test may take."""
AWAY: Final = 0.7


@pytest.fixture
def store(private_valkey: ValkeyServer) -> Iterator[RedisStore]:
    with RedisStore.from_url(private_valkey.url) as store:
        yield store


def ways(store: RedisStore) -> dict[str, Callable[[float | None], object]]:
    return {
        "lock": lambda timeout: Lock(store, "a").acquire(timeout=timeout),
        "fair": lambda timeout: FairLock(store, "a").acquire(timeout=timeout),
        "semaphore": lambda timeout: Semaphore(store, "a", permits=2).acquire(timeout=timeout),
        "write": lambda timeout: ReadWriteLock(store, "a").write.acquire(timeout=timeout),
        "multi": lambda timeout: MultiLock(store, ["a", "b"]).acquire(timeout=timeout),
    }


KINDS: Final = ["lock", "fair", "semaphore", "write", "multi"]


@pytest.mark.parametrize("kind", ["lock", "multi"])
def test_an_acquire_on_a_dead_server_waits_until_its_own_deadline(
    private_valkey: ValkeyServer, store: RedisStore, kind: str
) -> None:
    private_valkey.kill()
    began = time.monotonic()
    with pytest.raises(LockUnreachable, match="did not answer"):
        ways(store)[kind](WAIT)
    assert time.monotonic() - began >= WAIT


@pytest.mark.parametrize("kind", ["lock", "multi"])
def test_an_acquire_takes_the_lock_of_a_server_that_comes_back_in_time(
    private_valkey: ValkeyServer, store: RedisStore, kind: str
) -> None:
    private_valkey.kill()
    timer = threading.Timer(AWAY, private_valkey.restart)
    began = time.monotonic()
    timer.start()
    assert ways(store)[kind](LONG) is not None
    assert time.monotonic() - began >= AWAY
    timer.join()


def test_a_waiter_that_sleeps_takes_the_lock_after_a_restart_without_data(
    private_valkey: ValkeyServer, store: RedisStore
) -> None:
    store.client.config_set("save", "")
    Lock(store, "a", ttl=LONG).acquire(timeout=0)
    tokens: list[int] = []

    def wait() -> None:
        with Lock(store, "a", ttl=LONG).acquire(timeout=LONG) as lease:
            tokens.append(lease.fencing_token)

    waiters = [threading.Thread(target=wait) for _ in range(3)]
    for count, waiter in enumerate(waiters, 1):
        waiter.start()
        wait_until(partial(has_come_to_rest, store, count))
    private_valkey.kill()
    time.sleep(AWAY * 2)  # longer than the time between two checks
    private_valkey.restart()
    for waiter in waiters:
        waiter.join(LONG)
    assert len(set(tokens)) == 3


def test_a_server_stopped_for_longer_than_its_clients_patience_is_waited_for(private_valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(private_valkey.url, socket_timeout=0.2) as client, RedisStore(client) as store:
        Lock(store, "before", ttl=LONG).acquire(timeout=LONG)  # it has connected
        os.kill(private_valkey.pid, signal.SIGSTOP)
        timer = threading.Timer(WAIT, os.kill, (private_valkey.pid, signal.SIGCONT))
        began = time.monotonic()
        timer.start()
        Lock(store, "a", ttl=LONG).acquire(timeout=LONG)
        assert time.monotonic() - began >= WAIT
        timer.join()


def test_a_single_try_and_an_acquire_in_a_policys_block_are_told_at_once(
    private_valkey: ValkeyServer, store: RedisStore
) -> None:
    private_valkey.kill()
    for kind in KINDS:
        with pytest.raises(LockUnreachable):
            ways(store)[kind](0)
        with pytest.raises(LockUnreachable), UnreachablePolicy().around(Work("ship")):
            ways(store)[kind](ENDLESS)
        with pytest.raises(LockUnreachable), UnreachablePolicy().around(Work("ship"), lock_name="a"):
            ways(store)[kind](ENDLESS)


def test_without_a_timeout_an_acquire_gives_up_when_the_server_was_away_for_so_long(
    private_valkey: ValkeyServer, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unreachable.AWAY_SECONDS == 60.0
    monkeypatch.setattr(unreachable, "AWAY_SECONDS", WAIT)
    private_valkey.kill()
    for kind in ("lock", "multi"):
        began = time.monotonic()
        with pytest.raises(LockUnreachable):
            ways(store)[kind](None)
        assert time.monotonic() - began >= WAIT


# When Redis is away: raised at once, or recorded and replayed; an alarm either way. Real servers, really killed.


def test_without_a_place_to_record_it_is_raised_at_once_and_the_alarm_is_called(
    private_valkey: ValkeyServer, store: RedisStore
) -> None:
    rung: list[tuple[StoreUnavailable, str]] = []
    policy = UnreachablePolicy(alarm=lambda error, name: rung.append((error, name)))
    private_valkey.kill()
    with pytest.raises(LockUnreachable) as caught, policy.around(Work("ship")), Lock(store, "order:7").acquire():
        pytest.fail("the body ran")
    assert rung == [(caught.value, "order:7")]
    assert caught.value.name == "order:7"


def test_work_is_recorded_while_the_server_is_dead_and_replayed_when_it_is_back(
    private_valkey: ValkeyServer,
    store: RedisStore,
    letters: SqlDeadLetters,
    reopen_letters: Callable[[], SqlDeadLetters],
) -> None:
    rung: list[str] = []
    policy = UnreachablePolicy(record_to=letters, alarm=lambda _, name: rung.append(name))
    shipped: list[int] = []

    def ship(order: int) -> bool:
        work, lock = Work("ship", {"order": order}, f"ship:{order}"), Lock(store, f"order:{order}", ttl=LONG)
        with policy.around(work) as outcome, lock.acquire(timeout=60):
            shipped.append(order)
        return outcome.is_recorded

    assert ship(1) is False
    private_valkey.kill()
    assert [ship(2), ship(3), ship(2)] == [True, True, True]
    assert (shipped, rung) == ([1], ["order:2", "order:3", "order:2"])
    private_valkey.restart()

    again = reopen_letters()
    assert ids(again) == ["ship:2", "ship:3"]
    assert replay(again, lambda letter: ship(letter.work.payload["order"])) == Replayed(2, 0, 0, 0)
    assert shipped == [1, 2, 3]
    assert ids(letters) == []
    assert replay(letters, lambda letter: ship(letter.work.payload["order"])) == Replayed(0, 0, 0, 0)


def test_a_store_that_goes_away_in_the_middle_of_the_body_is_raised_and_not_recorded(
    private_valkey: ValkeyServer, store: RedisStore, letters: SqlDeadLetters
) -> None:
    around = UnreachablePolicy(record_to=letters).around(Work("ship"))
    with pytest.raises(StoreUnavailable) as caught, around as outcome, Lock(store, "order:7", ttl=LONG).acquire():
        private_valkey.kill()
    assert not isinstance(caught.value, LockUnreachable)
    assert (outcome.is_recorded, ids(letters)) == (False, [])


@pytest.mark.parametrize("word", ["lock", "fair", "semaphore", "read", "multi", "locked"])
def test_every_way_to_acquire_is_recorded(
    private_valkey: ValkeyServer, store: RedisStore, sqlite_letters: SqlDeadLetters, word: str
) -> None:
    @locked("order:{number}", store=store)
    def ship(number: int) -> None:
        pytest.fail(f"the body ran for {number}")

    acquire: dict[str, Callable[[], object]] = {
        "lock": lambda: Lock(store, "a").acquire(),
        "fair": lambda: FairLock(store, "a").acquire(),
        "semaphore": lambda: Semaphore(store, "a", permits=2).acquire(),
        "read": ReadWriteLock(store, "a").read.acquire,
        "multi": lambda: MultiLock(store, ["a", "b"]).acquire(),
        "locked": lambda: ship(7),
    }
    private_valkey.kill()
    with UnreachablePolicy(record_to=sqlite_letters).around(Work("ship", work_id="one")) as outcome:
        acquire[word]()
        pytest.fail("it was acquired")
    assert (outcome.is_recorded, ids(sqlite_letters)) == (True, ["one"])


def test_an_alarm_that_fails_is_logged_and_hides_nothing(
    private_valkey: ValkeyServer, store: RedisStore, sqlite_letters: SqlDeadLetters, caplog: pytest.LogCaptureFixture
) -> None:
    def alarm(_: LockUnreachable, __: str) -> None:
        raise RuntimeError("the pager is broken")

    private_valkey.kill()
    with caplog.at_level(logging.ERROR, logger="segmented.locks"):
        with UnreachablePolicy(record_to=sqlite_letters, alarm=alarm).around(Work("ship", work_id="one")):
            Lock(store, "a").acquire()
        with pytest.raises(LockUnreachable), UnreachablePolicy(alarm=alarm).around(Work("ship")):
            Lock(store, "a").acquire()
    assert ids(sqlite_letters) == ["one"]
    assert [(record.message, vars(record)["lock"]) for record in caplog.records] == [("lock.alarm_failed", "a")] * 2


def test_an_alarm_that_must_be_awaited_is_refused_where_nobody_awaits_it(sqlite_letters: SqlDeadLetters) -> None:
    async def alarm(_: LockUnreachable, __: str) -> None:
        """Never called."""

    policy = UnreachablePolicy(record_to=sqlite_letters, alarm=alarm)
    with pytest.raises(InvalidInput, match="only `async with` can await"), policy.around(Work("ship")):
        pytest.fail("the body ran")


# A waiter learns within a second that what it waits for is gone without a message. Real servers.


WITHIN_SECONDS: Final = 1.0
WAYS: Final = ["FLUSHALL", f"DEL {lock_keys('door').lock}"]


def next_look(store: RedisStore) -> float:
    """Return in how many seconds the first waiter asks again by itself, as it has decided before it fell asleep."""
    (line,) = lines_of(store).values()
    wait_until(lambda: line.due < inf)  # it is asking in another thread
    return line.due - store.clock.now()


@pytest.mark.parametrize("way", WAYS)
def test_a_waiting_thread_takes_a_lock_within_a_second_of_its_vanishing(private_valkey: ValkeyServer, way: str) -> None:
    with RedisStore.from_url(private_valkey.url) as store, RedisStore.from_url(private_valkey.url) as other:
        Lock(other, "door", ttl=LONG).acquire(timeout=0)
        taken: list[int] = []

        def wait() -> None:
            with Lock(store, "door", ttl=LONG).acquire(timeout=LONG) as lease:
                taken.append(lease.fencing_token)

        waiters = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
        for count, waiter in enumerate(waiters, 1):
            waiter.start()
            wait_until(partial(has_come_to_rest, store, count))
        assert next_look(store) <= WITHIN_SECONDS
        other.client.execute_command(*way.split())
        for waiter in waiters:
            waiter.join()
    assert len(set(taken)) == 3


def test_a_waiter_takes_a_lock_within_a_second_of_a_restart_without_data(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store, RedisStore.from_url(private_valkey.url) as other:
        Lock(other, "door", ttl=LONG).acquire(timeout=0)
        leases: list[int] = []

        def wait() -> None:
            with Lock(store, "door", ttl=LONG).acquire(timeout=LONG) as lease:
                leases.append(lease.fencing_token)

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        wait_until(partial(has_come_to_rest, store, 1))
        other.client.config_set("save", "")
        private_valkey.kill()
        private_valkey.restart()
        waiter.join()
    assert len(leases) == 1


def test_a_grant_that_waits_learns_within_a_second_that_its_pool_is_gone(private_valkey: ValkeyServer) -> None:
    with RedisStore.from_url(private_valkey.url) as store, RedisStore.from_url(private_valkey.url) as other:
        Pool(other, "poster", ttl=LONG).open(stock=9, segments=1)
        Pool(other, "poster", ttl=LONG).grant("first").__enter__()
        said: list[str] = []

        def wait() -> None:
            with pytest.raises(StockError), Pool(store, "poster", ttl=LONG).grant("second", timeout=LONG):
                pass
            said.append("gone")

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        wait_until(partial(has_come_to_rest, store, 1))
        other.client.flushall()
        waiter.join()
    assert said == ["gone"]


def test_a_waiting_task_takes_a_lock_within_a_second_of_its_vanishing(private_valkey: ValkeyServer) -> None:
    async def run() -> None:
        async with (
            await AsyncRedisStore.from_url(private_valkey.url) as store,
            await AsyncRedisStore.from_url(private_valkey.url) as other,
        ):
            await AsyncLock(other, "door", ttl=LONG).acquire(timeout=0)
            waiter = asyncio.create_task(AsyncLock(store, "door", ttl=LONG).acquire(timeout=LONG))
            await parked(store, 1)
            await other.client.flushall()
            lease = await waiter
            await lease.release()

    asyncio.run(run())

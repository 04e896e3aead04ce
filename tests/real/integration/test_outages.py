"""An acquire waits until its own deadline for a server that is away, and takes the lock if it comes back in time."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest
import redis

from segmented.errors import LockUnreachable
from segmented.locks import FairLock, Lock, MultiLock, ReadWriteLock, Semaphore, outages
from segmented.locks.dead_letters import Work
from segmented.locks.unreachable import UnreachablePolicy
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.support.contract.parking import has_come_to_rest, wait_until

LONG: Final = 60.0
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
    assert outages.AWAY_SECONDS == 60.0
    monkeypatch.setattr(outages, "AWAY_SECONDS", WAIT)
    private_valkey.kill()
    for kind in ("lock", "multi"):
        began = time.monotonic()
        with pytest.raises(LockUnreachable):
            ways(store)[kind](None)
        assert time.monotonic() - began >= WAIT

"""A store made from a client: what it takes, what it refuses, and what is left to the client's owner."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
import redis
import valkey
from redis import asyncio as redis_asyncio

from segmented.errors import InvalidInput, LockUnreachable, StoreBusy, StoreRefused
from segmented.locks import AsyncLock, Lock, SqlDeadLetters, UnreachablePolicy, Work
from segmented.locks.lock import LockClaim
from segmented.protocol.wire import Exchange, Send
from segmented.servers import ValkeyServer
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.support.contract.parking import has_come_to_rest, wait_until

LIMIT: Final = 5
GO: Final = "go"
TTL: Final = 600.0
"""Seconds that a lease lives: more than a test may take."""
SOON: Final = 60.0
THREADS: Final = 20
"""Four times as many as the client allows connections."""


def made_by_us(server: redis.Redis, name: str) -> int:
    """Return how many connections the server has under a client's name."""
    return sum(client["name"] == name for client in server.client_list())


def busy(*_: object) -> Exchange[None]:
    """Keep a connection busy, on a server in good order, until `let_go`."""
    yield Send((("BLPOP", GO, str(TTL)),), patience=TTL)


def brief(*_: object) -> Exchange[None]:
    """Use a connection."""
    yield Send((("GET", GO),))


def let_go(server: redis.Redis, count: int = 1) -> None:
    server.rpush(GO, *["go"] * count)


def are_busy(server: redis.Redis, count: int) -> bool:
    """Return whether so many connections are busy."""
    return int(server.info("clients")["blocked_clients"]) == count


# --- the limit ---


@pytest.mark.parametrize("pool_class", [redis.ConnectionPool, redis.BlockingConnectionPool])
def test_the_users_own_calls_go_on_while_four_times_as_many_threads_lock(
    private_valkey: ValkeyServer, pool_class: type[redis.ConnectionPool]
) -> None:
    pool = pool_class.from_url(private_valkey.url, max_connections=LIMIT, client_name="shared")
    client, server = redis.Redis.from_pool(pool), redis.Redis.from_url(private_valkey.url, decode_responses=True)
    stop, seen, failed = threading.Event(), [], []

    def call() -> None:
        while not stop.is_set():
            try:
                client.get("mine")
            except redis.RedisError as error:
                failed.append(error)

    with server, client, RedisStore(client) as store, ThreadPoolExecutor(THREADS + 1) as threads:
        own = threads.submit(call)

        def lock(index: int) -> None:
            for turn in range(20):
                with Lock(store, f"lock-{index}-{turn % 3}", ttl=TTL).acquire(timeout=SOON):
                    seen.append(made_by_us(server, "shared")) if index == 0 else None

        list(threads.map(lock, range(THREADS)))
        stop.set()
        own.result(SOON)
    assert failed == []
    assert max(seen) <= LIMIT + 1  # the store's, and the one of the user's own calls


def test_tasks_open_at_most_what_the_client_allows(private_valkey: ValkeyServer) -> None:
    async def test() -> tuple[int, int]:
        client = redis_asyncio.Redis.from_url(private_valkey.url, max_connections=LIMIT, client_name="shared")
        async with client, AsyncRedisStore(client) as store:
            locks = [AsyncLock(store, f"lock{index}", ttl=TTL) for index in range(101)]
            leases = await asyncio.gather(*(lock.acquire(timeout=SOON) for lock in locks))
            with redis.Redis.from_url(private_valkey.url, decode_responses=True) as server:
                return len({lease.name for lease in leases}), made_by_us(server, "shared")

    assert asyncio.run(test()) == (101, LIMIT - 1)


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_hand_over_takes_no_poll_with_one_connection(
    private_valkey: ValkeyServer, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockClaim, "look_seconds", TTL)  # so the waiter asks once it is told, and no sooner
    clients = [redis.Redis.from_url(private_valkey.url, max_connections=1, protocol=protocol) for _ in range(2)]
    with clients[0], clients[1], RedisStore(clients[0]) as one, RedisStore(clients[1]) as two:
        lease = Lock(one, "door", ttl=TTL).acquire()
        with ThreadPoolExecutor(1) as threads:
            waiter = threads.submit(Lock(two, "door", ttl=TTL).acquire, timeout=2 * SOON)
            wait_until(lambda: has_come_to_rest(two, 1))
            lease.release()
            waiter.result(SOON).release()


def test_idle_connections_are_given_back(private_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = redis.Redis.from_url(private_valkey.url, client_name="shared")
    server = redis.Redis.from_url(private_valkey.url, decode_responses=True)
    with client, server, RedisStore(client) as store, ThreadPoolExecutor(8) as threads:
        link: Any = store._link  # noqa: SLF001  # looks behind the store
        running = [threads.submit(link.run, busy) for _ in range(8)]
        wait_until(lambda: are_busy(server, 8))
        let_go(server, 8)
        for one in running:
            one.result(SOON)
        assert made_by_us(server, "shared") == 8
        monkeypatch.setattr("segmented.stores.redis.link.IDLE_SECONDS", 0.2)
        threading.Event().wait(0.3)
        for _ in range(8):
            link.run(brief)
        wait_until(lambda: made_by_us(server, "shared") == 1)


# --- no connection free ---


def test_who_gets_no_connection_in_time_is_not_told_that_the_server_is_away(
    private_valkey: ValkeyServer, sqlite_letters: SqlDeadLetters
) -> None:
    policy = UnreachablePolicy(record_to=sqlite_letters)
    client = redis.Redis.from_url(private_valkey.url, max_connections=1)
    server = redis.Redis.from_url(private_valkey.url)
    with client, server, RedisStore(client) as store, ThreadPoolExecutor(1) as threads:
        link: Any = store._link  # noqa: SLF001  # looks behind the store
        running = threads.submit(link.run, busy)
        wait_until(lambda: are_busy(server, 1))
        with (
            pytest.raises(
                StoreBusy, match=r"^none of the 1 connections .* was free in time; allow more, or wait"
            ) as caught,
            policy.around(Work("job")),
            Lock(store, "x", ttl=TTL).acquire(timeout=0.3),
        ):
            raise AssertionError
        assert not isinstance(caught.value, LockUnreachable)
        assert not running.done()
        let_go(server)
        running.result(SOON)
        Lock(store, "x", ttl=TTL).acquire(timeout=SOON).release()
    assert sqlite_letters.pending() == []


def test_who_waits_for_a_connection_to_a_silent_server_is_told_of_the_server(private_valkey: ValkeyServer) -> None:
    client = redis.Redis.from_url(private_valkey.url, max_connections=1, socket_timeout=0.4)
    with client, RedisStore(client) as store, ThreadPoolExecutor(4) as threads:
        os.kill(private_valkey.pid, signal.SIGSTOP)
        try:
            with pytest.raises(LockUnreachable):  # from now on it is known
                Lock(store, "x", ttl=TTL).acquire(timeout=0.6)
            tries = [threads.submit(Lock(store, f"x{index}", ttl=TTL).acquire, timeout=0.6) for index in range(4)]
            assert [type(one.exception(SOON)) for one in tries] == [LockUnreachable] * 4
        finally:
            os.kill(private_valkey.pid, signal.SIGCONT)


# --- the server is checked ---


@pytest.mark.parametrize("given", [{"password": "hunter2"}, {}], ids=["wrong", "missing"])
def test_a_password_that_is_refused_is_refused_at_construction(
    private_valkey: ValkeyServer, given: dict[str, str]
) -> None:
    with redis.Redis.from_url(private_valkey.url) as server:
        server.config_set("requirepass", "open")
    with redis.Redis.from_url(private_valkey.url, **given) as client, pytest.raises(InvalidInput) as caught:
        RedisStore(client)
    path = private_valkey.url.removeprefix("unix://").partition("?")[0]
    assert str(caught.value).startswith(f"{path} refused the password: ")
    assert "hunter2" not in str(caught.value)


def test_a_task_is_told_of_a_refused_password_at_the_first_operation(private_valkey: ValkeyServer) -> None:
    async def test() -> None:
        async with (
            redis_asyncio.Redis.from_url(private_valkey.url, password="hunter2") as client,
            AsyncRedisStore(client) as store,
        ):
            with pytest.raises(StoreRefused, match="refused the password: "):
                await AsyncLock(store, "x", ttl=TTL).acquire(timeout=SOON)

    with redis.Redis.from_url(private_valkey.url) as server:
        server.config_set("requirepass", "open")
    asyncio.run(test())


def test_a_server_that_was_away_at_construction_is_checked_before_its_first_use(
    private_valkey: ValkeyServer,
) -> None:
    with redis.Redis.from_url(private_valkey.url) as client:
        private_valkey.kill()
        with RedisStore(client) as store:
            with pytest.raises(LockUnreachable):
                Lock(store, "x", ttl=TTL).acquire(timeout=0)
            private_valkey.restart()
            client.replicaof("127.0.0.1", 1)
            with pytest.raises(InvalidInput, match="is a replica, which takes no locks"):
                Lock(store, "x", ttl=TTL).acquire(timeout=SOON)
            client.replicaof("NO", "ONE")
            Lock(store, "x", ttl=TTL).acquire(timeout=SOON).release()


# --- which clients serve ---


def test_a_lock_by_any_name_on_clients_of_any_encoding(valkey: ValkeyServer) -> None:
    every: list[dict[str, Any]] = [{}, {"decode_responses": True}, {"encoding": "latin-1", "decode_responses": True}]
    for options in every:
        client = redis.Redis.from_url(valkey.url, **options)
        with client, RedisStore(client) as store, Lock(store, "ü, 票", ttl=TTL).acquire(timeout=SOON):
            assert Lock(store, "ü, 票", ttl=TTL).try_acquire() is None


def test_valkey_py_serves(private_valkey: ValkeyServer) -> None:
    client: Any = valkey.Valkey.from_url(private_valkey.url, protocol=3, max_connections=3, decode_responses=True)
    with client, RedisStore(client) as store:
        lease = Lock(store, "x", ttl=TTL).acquire(timeout=SOON)
        assert Lock(store, "x", ttl=TTL).try_acquire() is None
        lease.release()
        private_valkey.kill()
        with pytest.raises(LockUnreachable):
            Lock(store, "x", ttl=TTL).acquire(timeout=0)

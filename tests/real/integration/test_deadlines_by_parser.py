"""Deadlines hold with every parser, and a connection that was made in a hurry is as patient as any other afterwards."""

import os
import signal
import time
from contextlib import suppress
from typing import Any, Final

import psutil
import pytest
import redis
from redis import asyncio as redis_asyncio

from segmented.errors import LockUnreachable
from segmented.locks import AsyncLease, AsyncLock, Lease, Lock
from segmented.protocol import AcquireLock
from segmented.protocol.wire import Exchange, Send
from segmented.servers import ValkeyServer
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.support.flavour import Flavour
from tests.support.stacks import new_event_loop, parser_options

HURRY: Final = 0.15
QUICK: Final = 0.5
SLOW: Final = 0.9
PATIENT: Final = 600.0
"""Seconds that a connection waits for an answer, and that a lease lives: more than a test may take."""
STACKS: Final = [
    pytest.param("hiredis", 2, id="hiredis-resp2"),
    pytest.param("python", 3, id="python-resp3"),
]
"""Each parser and each protocol once."""


def stopped(server: ValkeyServer) -> None:
    """Let a server stand still, and wait until it does: the signal takes a moment, in which it might answer."""
    os.kill(server.pid, signal.SIGSTOP)
    process = psutil.Process(server.pid)
    while process.status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)


def slow(*_: object) -> Exchange[None]:
    """Have the server answer after a while."""
    yield Send((("BLPOP", "nothing is ever here", str(SLOW)),))


def options(stack: str, protocol: int, colour: str) -> dict[str, Any]:
    patience = {"socket_timeout": PATIENT, "socket_connect_timeout": PATIENT}
    return {"protocol": protocol, **patience, **parser_options(Flavour("redis", colour, protocol), stack)}


def taken_in_a_hurry(store: RedisStore, name: str) -> Lease:
    """Acquire a lock with less time than the connection's; on a busy machine that takes more than one attempt."""
    for _ in range(100):
        with suppress(LockUnreachable):
            return Lock(store, name, ttl=PATIENT).acquire(timeout=QUICK)
    raise AssertionError


async def async_taken_in_a_hurry(store: AsyncRedisStore, name: str) -> AsyncLease:
    """Do the same in asyncio."""
    for _ in range(100):
        with suppress(LockUnreachable):
            return await AsyncLock(store, name, ttl=PATIENT).acquire(timeout=QUICK)
    raise AssertionError


@pytest.mark.parametrize(("stack", "protocol"), STACKS)
def test_threads(private_valkey: ValkeyServer, stack: str, protocol: int) -> None:
    with redis.Redis.from_url(private_valkey.url, **options(stack, protocol, "sync")) as client:
        stopped(private_valkey)
        try:
            store = RedisStore(client)  # checked later, as nobody answers
            began = time.monotonic()
            with pytest.raises(LockUnreachable):
                Lock(store, "x", ttl=PATIENT).acquire(timeout=HURRY)
            assert HURRY <= time.monotonic() - began < PATIENT / 4
        finally:
            os.kill(private_valkey.pid, signal.SIGCONT)
        with store:
            link: Any = store._link  # noqa: SLF001  # looks behind the store
            taken_in_a_hurry(store, "x").release()
            link._tries = 1  # noqa: SLF001  # a second try would hide a time-out
            link.run(slow)
            many = [AcquireLock(f"{'long' * 200}{index}", "h", 1_000) for index in range(2_000)]
            assert len(store.execute_many(many)) == len(many)
            stopped(private_valkey)
            try:
                began = time.monotonic()
                with pytest.raises(LockUnreachable):
                    Lock(store, "y", ttl=PATIENT).acquire(timeout=HURRY)
                assert HURRY <= time.monotonic() - began < PATIENT / 4
            finally:
                os.kill(private_valkey.pid, signal.SIGCONT)


@pytest.mark.parametrize(("stack", "protocol"), [*STACKS, pytest.param("uvloop", 3, id="uvloop-resp3")])
def test_tasks(private_valkey: ValkeyServer, stack: str, protocol: int) -> None:
    async def test() -> None:
        client = redis_asyncio.Redis.from_url(private_valkey.url, **options(stack, protocol, "async"))
        async with client, AsyncRedisStore(client) as store:
            link: Any = store._link  # noqa: SLF001  # looks behind the store
            for is_connected in (False, True):
                stopped(private_valkey)
                try:
                    began = time.monotonic()
                    with pytest.raises(LockUnreachable):
                        await AsyncLock(store, "x", ttl=PATIENT).acquire(timeout=HURRY)
                    assert HURRY <= time.monotonic() - began < PATIENT / 4
                finally:
                    os.kill(private_valkey.pid, signal.SIGCONT)
                if not is_connected:
                    await (await async_taken_in_a_hurry(store, "x")).release()
                    await link.run(slow)

    loop = new_event_loop(Flavour("redis", "async", protocol), stack)
    try:
        loop.run_until_complete(test())
    finally:
        loop.close()

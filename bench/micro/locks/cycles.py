"""Uncontended cycles: acquire and release a free lock repeatedly. One factory per subject; imports stay inside.

`python -m bench.micro.locks.cycles SUBJECT URL` runs one subject in its own process, with the interpreter of its
environment: it reads the number of cycles, and prints the seconds they took.

A factory connects to the server at a URL, warms up, and returns a function that runs a number of cycles and returns the
seconds they took. Other libraries are used through their documented calls, at their defaults, with a lease of 30 s if
they have one.
"""

# Each subject has its own process, and each competitor its own environment, which may lack the others' imports.
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from segmented.protocol.wire import Dialect

    Cycles = Callable[[int], float]


class BareSocket:
    """One connection, one command at a time, each with a short reply."""

    def __init__(self, url: str) -> None:
        """Connect to the server at `unix://path` or `redis://host:port`, without a password."""
        parts = urlsplit(url)
        if parts.scheme == "unix":
            self.line = socket.socket(socket.AF_UNIX)
            self.line.connect(parts.path)
        else:
            self.line = socket.create_connection((parts.hostname or "localhost", parts.port or 6379))

    def ask(self, *words: str) -> bytes:
        """Send a command and return its raw reply, of at most 4 KiB."""
        sizes = b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)
        self.line.sendall(b"*%d\r\n" % len(words) + sizes)
        return self.line.recv(4096)

    def close(self) -> None:
        """Close it."""
        self.line.close()


TTL: Final = 30.0
WARM_UP: Final = 20
NAME: Final = "benched"


def _timed(cycle: Callable[[], object]) -> Cycles:
    def run(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            cycle()
        return time.perf_counter() - began

    run(WARM_UP)
    return run


def _timed_pairs(lock: Any) -> Cycles:  # noqa: ANN401  # each library has its own type
    def cycle() -> None:
        lock.acquire()
        lock.release()

    return _timed(cycle)


def _timed_async(loop: asyncio.AbstractEventLoop, cycle: Callable[[], Awaitable[object]]) -> Cycles:
    async def several(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            await cycle()
        return time.perf_counter() - began

    def run(count: int) -> float:
        return loop.run_until_complete(several(count))

    run(WARM_UP)
    return run


def segmented_lock_by_scripts(url: str) -> Cycles:
    """Run our `Lock` by scripts, as on servers without a command of their own."""
    from segmented.protocol.wire import Dialect

    return segmented_lock(url, Dialect.SCRIPT)


def segmented_lock(url: str, dialect: Dialect | None = None) -> Cycles:
    """Run our `Lock`, with the server's own command if it has one."""
    from segmented import Lock, RedisStore

    lock = Lock(RedisStore.from_url(url, dialect=dialect), NAME, ttl=TTL)

    def cycle() -> None:
        lock.acquire().release()

    return _timed(cycle)


def segmented_async_lock(url: str) -> Cycles:
    """Run our `AsyncLock`."""
    from segmented import AsyncLock, AsyncRedisStore

    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(AsyncRedisStore.from_url(url))
    lock = AsyncLock(store, NAME, ttl=TTL)

    async def cycle() -> None:
        lease = await lock.acquire()
        await lease.release()

    return _timed_async(loop, cycle)


def redis_py_lock(url: str) -> Cycles:
    """Run the `Lock` of redis-py."""
    import redis

    return _timed_pairs(redis.Redis.from_url(url).lock(NAME, timeout=TTL))


def redis_py_async_lock(url: str) -> Cycles:
    """Run the asyncio `Lock` of redis-py."""
    from redis import asyncio as redis_asyncio

    loop = asyncio.new_event_loop()
    lock = redis_asyncio.Redis.from_url(url).lock(NAME, timeout=TTL)

    async def cycle() -> None:
        await lock.acquire()
        await lock.release()

    return _timed_async(loop, cycle)


def raw_socket(url: str) -> Cycles:
    """Run the same two steps on a bare socket: SET NX PX, and a script that compares and deletes."""
    script = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end"
    ask = BareSocket(url).ask
    sha = ask("SCRIPT", "LOAD", script).split(b"\r\n")[1].decode()

    def cycle() -> None:
        ask("SET", NAME, "holder", "NX", "PX", "30000")
        ask("EVALSHA", sha, "1", NAME, "holder")

    return _timed(cycle)


def python_redis_lock(url: str) -> Cycles:
    """Run the `Lock` of python-redis-lock."""
    import redis
    import redis_lock

    client = redis.Redis.from_url(url)

    def cycle() -> None:
        lock = redis_lock.Lock(client, NAME, expire=int(TTL))
        lock.acquire()
        lock.release()

    return _timed(cycle)


def pottery_redlock(url: str) -> Cycles:
    """Run the `Redlock` of pottery, with one server."""
    import redis
    from pottery import Redlock

    return _timed_pairs(Redlock(key=NAME, masters={redis.Redis.from_url(url)}, auto_release_time=TTL))


def sherlock_lock(url: str) -> Cycles:
    """Run the `RedisLock` of sherlock."""
    import redis
    from sherlock import RedisLock

    return _timed_pairs(RedisLock(NAME, client=redis.Redis.from_url(url), expire=int(TTL), timeout=1))


OURS: Final = "segmented Lock"
OURS_ASYNC: Final = "segmented AsyncLock"
REDIS_PY: Final = "redis-py Lock"
REDIS_PY_ASYNC: Final = "redis-py asyncio Lock"
RAW: Final = "raw socket"

CYCLES: Final = {
    OURS: segmented_lock,
    "segmented Lock, by scripts": segmented_lock_by_scripts,
    REDIS_PY: redis_py_lock,
    "python-redis-lock Lock": python_redis_lock,
    "pottery Redlock": pottery_redlock,
    "sherlock RedisLock": sherlock_lock,
    RAW: raw_socket,
    OURS_ASYNC: segmented_async_lock,
    REDIS_PY_ASYNC: redis_py_async_lock,
}
PEERS: Final = {
    "python-redis-lock Lock": "python-redis-lock",
    "pottery Redlock": "pottery",
    "sherlock RedisLock": "sherlock",
}
"""Names of the environments of subjects that need their own."""


def main(subject: str, url: str) -> None:
    """Print `ready`, then answer each line of standard input until it ends."""
    run = CYCLES[subject](url)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(f"{run(int(line)):.9f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A process that makes one deduplicated call: `python -m tests.real.faults.dedup_caller URL KEY LOG COLOUR LEASE`.

The call appends the process id to the list LOG on the server, and ends once the key `LOG:end` is there. The process
prints what it got.
"""

import asyncio
import os
import sys
import time

import redis

from segmented import AsyncDedup, AsyncRedisStore, Dedup, RedisStore
from segmented.dedup import DedupError

NAMESPACE = "callers"
LOOK_SECONDS = 0.01


def note_call(url: str, log: str) -> int:
    with redis.Redis.from_url(url) as server:
        server.rpush(log, str(os.getpid()))
    return os.getpid()


def may_end(url: str, log: str) -> bool:
    with redis.Redis.from_url(url) as server:
        return bool(server.exists(end_of(log)))


def end_of(log: str) -> str:
    """Return the key that ends the calls of a log."""
    return f"{log}:end"


def call(url: str, key: str, log: str, lease: float) -> int:
    def work() -> int:
        process_id = note_call(url, log)
        while not may_end(url, log):
            time.sleep(LOOK_SECONDS)
        return process_id

    with RedisStore.from_url(url) as store:
        return Dedup(store, NAMESPACE, ttl=lease).call(key, work)


async def call_async(url: str, key: str, log: str, lease: float) -> int:
    async def work() -> int:
        process_id = note_call(url, log)
        while not may_end(url, log):  # noqa: ASYNC110  # a key has no event
            await asyncio.sleep(LOOK_SECONDS)
        return process_id

    async with await AsyncRedisStore.from_url(url) as store:
        return await AsyncDedup(store, NAMESPACE, ttl=lease).call(key, work)


def main(url: str, key: str, log: str, colour: str, lease: float) -> None:
    try:
        if colour == "sync":
            found = str(call(url, key, log, lease))
        else:
            found = str(asyncio.run(call_async(url, key, log, lease)))
    except DedupError as error:
        found = type(error).__name__
    print(found, flush=True)  # noqa: T201  # the test reads it


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]))

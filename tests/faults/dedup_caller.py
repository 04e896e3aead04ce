"""A process that makes one deduplicated call: `python -m tests.faults.dedup_caller URL KEY LOG COLOUR LEASE SECONDS`.

The call appends the process id to the list LOG on the server and then works for SECONDS. It prints what it got.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import redis

from segmented import AsyncDedup, AsyncRedisStore, Dedup, RedisStore
from segmented.dedup import DedupError

NAMESPACE = "callers"


def note_call(url: str, log: str) -> int:
    with redis.Redis.from_url(url) as server:
        server.rpush(log, str(os.getpid()))
    return os.getpid()


def call(url: str, key: str, log: str, lease: float, seconds: float) -> int:
    def work() -> int:
        process_id = note_call(url, log)
        time.sleep(seconds)
        return process_id

    with RedisStore.from_url(url) as store:
        return Dedup(store, NAMESPACE, ttl=lease).call(key, work)


async def call_async(url: str, key: str, log: str, lease: float, seconds: float) -> int:
    async def work() -> int:
        process_id = note_call(url, log)
        await asyncio.sleep(seconds)
        return process_id

    async with await AsyncRedisStore.from_url(url) as store:
        return await AsyncDedup(store, NAMESPACE, ttl=lease).call(key, work)


def main(url: str, key: str, log: str, colour: str, lease: float, seconds: float) -> None:
    try:
        if colour == "sync":
            found = str(call(url, key, log, lease, seconds))
        else:
            found = str(asyncio.run(call_async(url, key, log, lease, seconds)))
    except DedupError as error:
        found = type(error).__name__
    print(found, flush=True)  # noqa: T201  # the test reads it


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]), float(sys.argv[6]))

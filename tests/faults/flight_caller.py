"""A process that asks a single flight: `python -m tests.faults.flight_caller URL KEY LOG COLOUR CALLERS SECONDS`.

Each call of its loader appends its process id to the list LOG on the server, and then works for SECONDS. It prints one
line when it is ready, begins when a line comes in, and prints what its callers got as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import redis

from segmented import AsyncRedisStore, RedisStore
from segmented.locks.flights import single_flight

LEASE = 4.5


def note_call(url: str, log: str) -> int:
    with redis.Redis.from_url(url) as server:
        server.rpush(log, str(os.getpid()))
    return os.getpid()


def call_in_threads(url: str, key: str, log: str, callers: int, seconds: float) -> list[int]:
    def load() -> int:
        process_id = note_call(url, log)
        time.sleep(seconds)
        return process_id

    with RedisStore.from_url(url) as store, ThreadPoolExecutor(callers) as threads:
        flight = single_flight(store, keep=60, ttl=LEASE)
        wait_for_the_word()
        started = [threads.submit(flight.get, key, load) for _ in range(callers)]
        return [call.result() for call in started]


async def call_in_tasks(url: str, key: str, log: str, callers: int, seconds: float) -> list[int]:
    async def load() -> int:
        process_id = note_call(url, log)
        await asyncio.sleep(seconds)
        return process_id

    async with await AsyncRedisStore.from_url(url) as store:
        flight = single_flight(store, keep=60, ttl=LEASE)
        wait_for_the_word()
        return list(await asyncio.gather(*(flight.get(key, load) for _ in range(callers))))


def wait_for_the_word() -> None:
    print("ready", flush=True)  # noqa: T201  # the test reads it
    sys.stdin.readline()


def main(url: str, key: str, log: str, colour: str, callers: int, seconds: float) -> None:
    if colour == "sync":
        found = call_in_threads(url, key, log, callers, seconds)
    else:
        found = asyncio.run(call_in_tasks(url, key, log, callers, seconds))
    print(json.dumps(found), flush=True)  # noqa: T201  # as above


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), float(sys.argv[6]))

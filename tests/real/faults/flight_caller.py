"""A process that asks a single flight: `python -m tests.real.faults.flight_caller URL KEY LOG COLOUR CALLERS LEASE`.

Each call of its loader appends its process id to the list LOG on the server, and ends once the key `LOG:end` is there.
It prints one line when it is ready, begins when a line comes in, and prints what its callers got as one line of JSON.
"""

import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from segmented import AsyncRedisStore, RedisStore
from segmented.locks.flights import single_flight
from tests.real.faults.dedup_caller import LOOK_SECONDS, may_end, note_call

TIMEOUT = 200.0


def call_in_threads(url: str, key: str, log: str, callers: int, lease: float) -> list[int]:
    def load() -> int:
        process_id = note_call(url, log)
        while not may_end(url, log):
            time.sleep(LOOK_SECONDS)
        return process_id

    with RedisStore.from_url(url) as store, ThreadPoolExecutor(callers) as threads:
        flight = single_flight(store, keep=60, ttl=lease, timeout=TIMEOUT)
        wait_for_the_word()
        started = [threads.submit(flight.get, key, load) for _ in range(callers)]
        return [call.result() for call in started]


async def call_in_tasks(url: str, key: str, log: str, callers: int, lease: float) -> list[int]:
    async def load() -> int:
        process_id = note_call(url, log)
        while not may_end(url, log):  # noqa: ASYNC110  # a key has no event
            await asyncio.sleep(LOOK_SECONDS)
        return process_id

    async with await AsyncRedisStore.from_url(url) as store:
        flight = single_flight(store, keep=60, ttl=lease, timeout=TIMEOUT)
        wait_for_the_word()
        return list(await asyncio.gather(*(flight.get(key, load) for _ in range(callers))))


def wait_for_the_word() -> None:
    print("ready", flush=True)  # noqa: T201  # the test reads it
    sys.stdin.readline()


def main(url: str, key: str, log: str, colour: str, callers: int, lease: float) -> None:
    if colour == "sync":
        found = call_in_threads(url, key, log, callers, lease)
    else:
        found = asyncio.run(call_in_tasks(url, key, log, callers, lease))
    print(json.dumps(found), flush=True)  # noqa: T201  # as above


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), float(sys.argv[6]))

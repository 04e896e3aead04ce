"""A process in which some wait for a fair lock: `python -m tests.real.faults.fair_waiters URL NAME COUNT [TTL]`.

With TTL it first takes the lock for so many seconds, and keeps it. Says `waiting` once all have come to rest, and
`acquired` for each that has got the lock; it releases it at once.
"""

import asyncio
import sys

from segmented.locks.fair import AsyncFairLock
from segmented.stores.redis import AsyncRedisStore
from tests.support.contract.parking import parked


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(url: str, name: str, count: int, ttl: float | None) -> None:
    async with await AsyncRedisStore.from_url(url) as store:
        lock = AsyncFairLock(store, name)
        held = None if ttl is None else await AsyncFairLock(store, name, ttl=ttl).acquire(timeout=0)

        async def wait() -> None:
            async with lock.acquire(timeout=None):
                say("acquired")

        waiters = []
        for index in range(count):
            waiters.append(asyncio.create_task(wait()))
            await parked(store, index + 1)
        say("waiting")
        await asyncio.gather(*waiters)
        del held  # kept until then: a lease that is dropped is released


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) if sys.argv[4:] else None))

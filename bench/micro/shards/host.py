"""The workers of one process, in this one or in another: `python -m bench.micro.shards.host`, as a host's would be.

The other process reads its work from stdin, a line of JSON (the URL has a password, which a process list would show),
says that it is ready, reads when to begin, and writes what it sold. All processes of a machine have the same clock.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from bench.children import close_process, kill_group, start_child, tell_child
from segmented import AsyncGrant, AsyncRedisStore
from segmented.errors import SegmentedError
from segmented.stock import AsyncShardedPool

if TYPE_CHECKING:
    from typing import Self

TIMEOUT: Final = 30.0
"""Seconds that an order waits for a segment."""
ANSWER_SECONDS: Final = 90.0
"""Seconds to wait for a line of another process, its start included."""
READY: Final = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Workers that order again and again, each from its own loop, and hold a segment while they sleep."""

    url: str
    sku: str
    workers: int
    hold: float
    seconds: float
    """How long orders count."""


@dataclass(frozen=True, slots=True)
class Sold:
    """Orders and CPU time of the workers of a process, in the time that counts."""

    orders: int
    cpu_seconds: float


async def sell(pool: AsyncShardedPool, work: Work, *, begins: float) -> Sold:
    """Let the workers order from now on; count orders that end within the seconds after `begins`, a monotonic time."""
    ends, sold = begins + work.seconds, 0

    async def order_again() -> None:
        nonlocal sold
        while time.monotonic() < ends:
            grant = await pool.grant(order_id(), timeout=TIMEOUT)
            if isinstance(grant, AsyncGrant):
                await asyncio.sleep(work.hold)
                await grant.confirm()
                sold += begins <= time.monotonic() < ends

    async def used() -> float:
        await asyncio.sleep(begins - time.monotonic())
        before = time.process_time()
        await asyncio.sleep(ends - time.monotonic())
        return time.process_time() - before

    cpu_seconds, *_ = await asyncio.gather(used(), *(order_again() for _ in range(work.workers)))
    return Sold(sold, cpu_seconds or 0.0)


def order_id() -> str:
    """Return a random id, so that each order is at home in a random shard, as the model has it.

    Numbered ids are not: the CRC-32 gives eight ids that differ in one digit eight different ones of 8 shards.
    """
    return uuid4().hex


class HostProcess:
    """Another process with workers."""

    def __init__(self, work: Work) -> None:
        """Start it; `wait_ready` waits until it can begin."""
        self._child = start_child(("-m", "bench.micro.shards.host"), errors=subprocess.STDOUT)
        tell_child(self._child, json.dumps(asdict(work)))

    def __enter__(self) -> Self:
        """Return the process."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        close_process(self._child)

    def wait_ready(self) -> None:
        """Wait until it is connected. Raises SegmentedError."""
        self._line(READY)

    def begin(self, begins: float) -> None:
        """Let its workers order now, and count from `begins` on."""
        tell_child(self._child, repr(begins))

    def sold(self) -> Sold:
        """Wait for the end, and return what it sold. Raises SegmentedError."""
        found: dict[str, Any] = json.loads(self._line("{"))
        return Sold(**found)

    def _line(self, start: str) -> str:
        """Return the next line, which must begin so."""
        overdue = threading.Timer(ANSWER_SECONDS, kill_group, [self._child])
        overdue.start()
        last = ""
        try:
            for line in self._child.stdout or ():
                if line.startswith(start):
                    return line
                last = line.strip() or last
        finally:
            overdue.cancel()
        message = f"a process of workers ended early: {last or f'no answer within {ANSWER_SECONDS:g} s'}"
        raise SegmentedError(message)


async def _work() -> None:
    work = Work(**json.loads(sys.stdin.readline()))
    async with await AsyncRedisStore.from_url(work.url) as store:
        pool = AsyncShardedPool(store, work.sku)
        await pool.state()  # reads the directory, once a process
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        sold = await sell(pool, work, begins=float(await asyncio.to_thread(sys.stdin.readline)))
    sys.stdout.write(f"{json.dumps(asdict(sold))}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_work())

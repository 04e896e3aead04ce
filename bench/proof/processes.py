"""Parts of the processes that tortures start: they end with their starter, and wait for a server that is away."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from segmented.errors import StoreUnavailable
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

CONNECT_SECONDS: Final = 30.0
"""Maximum time for a server to be restarted, or for its replica to be promoted."""
AGAIN_SECONDS: Final = 0.02


def end_with_starter() -> None:
    """Begin a session, so that a terminal's Ctrl-C reaches only the command, and end with the starting process."""
    os.setsid()
    threading.Thread(target=_wait_and_end, daemon=True).start()


def _wait_and_end() -> None:
    starter = multiprocessing.parent_process()
    if starter is not None:
        wait([starter.sentinel])
    os._exit(1)


def end(process: ForkServerProcess) -> None:
    """Kill a process, and wait for its end."""
    process.kill()  # its exit is not yet collected, so its id cannot belong to another process
    process.join()
    process.close()


def connected(url: str) -> RedisStore:
    """Connect to a server that may be away now. Raises StoreUnavailable if none answers in time."""
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return RedisStore.from_url(url)
        except StoreUnavailable:
            if time.monotonic() > until:
                raise
        time.sleep(AGAIN_SECONDS)

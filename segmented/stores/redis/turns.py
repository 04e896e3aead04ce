"""Turns at a bounded number of connections, for tasks: first come, first served, but releases first."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """A semaphore for one event loop with two queues: a task that frees something passes all others.

    So a thousand waiters do not delay a release, and those that wait for the released thing are served sooner.
    """

    def __init__(self, count: int) -> None:
        """Create `count` turns, all free."""
        self._free = count
        self._releases: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    def locked(self) -> bool:
        """Return whether the next task must wait."""
        return self._free == 0

    async def acquire(self, *, is_release: bool = False) -> None:
        """Take a turn, or wait for one."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        (self._releases if is_release else self._others).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn came at the same moment
                self.release()
            raise

    def release(self) -> None:
        """Pass the turn to the next task."""
        for queue in (self._releases, self._others):
            while queue:
                turn = queue.popleft()
                if not turn.done():  # a cancelled task has left its place
                    turn.set_result(None)
                    return
        self._free += 1

"""The lane to one server, for asyncio: as `lane`, with a task that ends when there is nothing to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from segmented.errors import SegmentedError
from segmented.plans.tasks import OfOneLoop, begun
from segmented.stores.quorum.lane import PATIENCE, unexpected
from segmented.stores.quorum.request_queue import Errand, RequestQueue
from segmented.stores.quorum.tally import NotAsked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.clock import Clock
    from segmented.plans.drivers import AsyncStore
    from segmented.stores.quorum.lane import Tell


class AsyncLane(OfOneLoop):
    """One server, and the task that sends requests to it."""

    def __init__(self, server: int, store: AsyncStore, clock: Clock, *, pause: float, tell: Tell) -> None:
        """Do not start anything yet."""
        self.store = store
        self._server = server
        self._clock = clock
        self._tell = tell
        self._queue = RequestQueue(pause)
        self._is_closing = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def submit(self, errands: Sequence[Errand]) -> None:
        """Queue errands behind the earlier ones."""
        self._enter_loop()
        refused = errands if self._is_closing else self._queue.add(errands)
        self._wake()
        for errand in refused:
            self._tell(self._server, errand, self._not_sent())

    async def close(self, seconds: float) -> None:
        """Send the remaining errands, and failed ones once more, and end; within `seconds` if the server answers."""
        self._enter_loop()
        self._is_closing = True
        if len(self._queue):
            self._wake()
        self._changed.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=seconds)
            for task in late:
                task.cancel()
            self._task = None

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(begun(self._run), name=f"segmented-quorum-{self._server}")
        self._changed.set()

    # --- the lane's task ---

    async def _run(self) -> None:
        while await self._is_busy():
            batch, late = self._queue.take_all() if self._is_closing else self._queue.take(self._clock.now())
            for errand in late:
                self._tell(self._server, errand, self._not_sent())
            if batch:
                await self._send(batch)
        self._task = None

    async def _is_busy(self) -> bool:
        """Sleep until there is work; return False if nothing is left."""
        while len(self._queue):
            seconds = self._queue.next_time() - self._clock.now()
            if seconds <= 0 or self._is_closing:
                return True
            self._changed.clear()
            timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                timer.cancel()
        return False

    async def _send(self, batch: Sequence[Errand]) -> None:
        votes = await self._asked(batch)
        now = self._clock.now()
        for errand, vote in zip(batch, votes, strict=True):
            if not self._is_closing:
                self._queue.settle(errand, vote, now)
        for errand, vote in zip(batch, votes, strict=True):
            self._tell(self._server, errand, vote)

    async def _asked(self, batch: Sequence[Errand]) -> Sequence[Any]:
        operations = [errand.operation for errand in batch]
        try:
            return await self.store.execute_many(operations, deadline=self.store.clock.now() + PATIENCE)
        except SegmentedError as error:
            return [error] * len(batch)
        except Exception as error:  # noqa: BLE001  # the lane continues, and the waiting caller gets the error
            return [unexpected(error)] * len(batch)

    def _not_sent(self) -> NotAsked:
        return NotAsked(f"{self.store!r} was not asked in time")

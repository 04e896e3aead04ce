"""The lane to one server, for asyncio and for threads: it sends the requests of its queue, one after the other.

A thread starts with the first errand and ends when it had nothing to do for a while, a task ends when there is nothing
to do. So a store that is never closed does not leave one behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import SegmentedError, StoreUnavailable
from segmented.plans.tasks import OfOneLoop, begun
from segmented.stores.quorum.request_queue import Errand, RequestQueue
from segmented.stores.quorum.tally import NotAsked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.clock import Clock
    from segmented.plans.drivers import AsyncStore, Store

    Tell = Callable[[int, Errand, object], None]
    """Called with the server, the errand, and the answer or error."""

PATIENCE: Final = 1.0
"""Seconds until an unanswered request counts as failed. No caller waits that long. But a late answer tells whether the
request was performed, and a failure does not."""
IDLE_SECONDS: Final = 10.0


class AsyncLane(OfOneLoop):
    """Sends requests to one server, for asyncio."""

    def __init__(self, server: int, store: AsyncStore, clock: Clock, *, pause: float, tell: Tell) -> None:
        self.store = store
        self._server = server
        self._clock = clock
        self._tell = tell
        self._queue = RequestQueue(pause)
        self._is_closing = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._guard = threading.RLock()
        self._changed = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        # threads: self._chores: deque[Callable[[], None]] = deque()

    def submit(self, errands: Sequence[Errand]) -> None:
        """Queue errands behind the earlier ones."""
        self._enter_loop()  # asyncio only
        with self._guard:
            refused = errands if self._is_closing else self._queue.add(errands)
            self._wake()
        for errand in refused:
            self._tell(self._server, errand, self._not_sent())

    # threads: def call(self, chore: Callable[[], None]) -> None:
    # threads:     """Queue another call for the lane's thread; the call must not raise."""
    # threads:     with self._guard:
    # threads:         self._chores.append(chore)
    # threads:         self._wake()

    async def close(self, seconds: float) -> None:
        """Send the remaining errands, and failed ones once more, and end; within `seconds` if the server answers."""
        self._enter_loop()  # asyncio only
        with self._guard:
            self._is_closing = True
            if len(self._queue):
                self._wake()
            self._changed.set()
            runner = self._runner
        if runner is not None:
            _, late = await asyncio.wait([runner], timeout=seconds)  # asyncio only
            for task in late:  # asyncio only
                task.cancel()
            self._runner = None  # asyncio only
            # threads: runner.join(seconds)

    def _wake(self) -> None:
        if self._runner is None or self._runner.done():  # asyncio only
            self._runner = asyncio.create_task(begun(self._run), name=f"segmented-quorum-{self._server}")
        # threads: if self._runner is None:
        # threads:     name = f"segmented-quorum-{self._server}"
        # threads:     self._runner = threading.Thread(target=self._run, name=name, daemon=True)
        # threads:     self._runner.start()
        self._changed.set()

    # --- the lane's task or thread ---

    async def _run(self) -> None:
        while await self._is_busy():
            # threads: while self._chores:
            # threads:     self._chores.popleft()()
            with self._guard:
                batch, late = self._queue.take_all() if self._is_closing else self._queue.take(self._clock.now())
            for errand in late:
                self._tell(self._server, errand, self._not_sent())
            if batch:
                await self._send(batch)

    async def _is_busy(self) -> bool:
        """Sleep until there is work; return False if there is none, and the task or thread ends."""
        # threads: was_woken = True
        while True:
            with self._guard:
                seconds = self._queue.next_time() - self._clock.now()
                if seconds <= 0 or (self._is_closing and len(self._queue)):
                    return True
                is_over = not len(self._queue)  # asyncio only
                # threads: if self._chores:
                # threads:     return True
                # threads: is_over = (self._is_closing or not was_woken) and not len(self._queue)
                if is_over:
                    self._runner = None
                    return False
                self._changed.clear()
            timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)  # asyncio only
            try:  # asyncio only
                await self._changed.wait()
            finally:
                timer.cancel()
            # threads: was_woken = self._changed.wait(min(seconds, IDLE_SECONDS))

    async def _send(self, batch: Sequence[Errand]) -> None:
        votes = await self._asked(batch)
        now = self._clock.now()
        with self._guard:
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


def unexpected(error: Exception) -> StoreUnavailable:
    """Translate any error into StoreUnavailable: it is unknown whether the operation ran."""
    failure = StoreUnavailable(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


# --- For threads: written by `make sync` from the classes above. ---


class ThreadLane:
    """Sends requests to one server, for threads."""

    def __init__(self, server: int, store: Store, clock: Clock, *, pause: float, tell: Tell) -> None:
        self.store = store
        self._server = server
        self._clock = clock
        self._tell = tell
        self._queue = RequestQueue(pause)
        self._is_closing = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._guard = threading.RLock()
        self._changed = threading.Event()
        self._runner: threading.Thread | None = None
        self._chores: deque[Callable[[], None]] = deque()

    def submit(self, errands: Sequence[Errand]) -> None:
        """Queue errands behind the earlier ones."""
        with self._guard:
            refused = errands if self._is_closing else self._queue.add(errands)
            self._wake()
        for errand in refused:
            self._tell(self._server, errand, self._not_sent())

    def call(self, chore: Callable[[], None]) -> None:
        """Queue another call for the lane's thread; the call must not raise."""
        with self._guard:
            self._chores.append(chore)
            self._wake()

    def close(self, seconds: float) -> None:
        """Send the remaining errands, and failed ones once more, and end; within `seconds` if the server answers."""
        with self._guard:
            self._is_closing = True
            if len(self._queue):
                self._wake()
            self._changed.set()
            runner = self._runner
        if runner is not None:
            runner.join(seconds)

    def _wake(self) -> None:
        if self._runner is None:
            name = f"segmented-quorum-{self._server}"
            self._runner = threading.Thread(target=self._run, name=name, daemon=True)
            self._runner.start()
        self._changed.set()

    # --- the lane's task or thread ---

    def _run(self) -> None:
        while self._is_busy():
            while self._chores:
                self._chores.popleft()()
            with self._guard:
                batch, late = self._queue.take_all() if self._is_closing else self._queue.take(self._clock.now())
            for errand in late:
                self._tell(self._server, errand, self._not_sent())
            if batch:
                self._send(batch)

    def _is_busy(self) -> bool:
        """Sleep until there is work; return False if there is none, and the task or thread ends."""
        was_woken = True
        while True:
            with self._guard:
                seconds = self._queue.next_time() - self._clock.now()
                if seconds <= 0 or (self._is_closing and len(self._queue)):
                    return True
                if self._chores:
                    return True
                is_over = (self._is_closing or not was_woken) and not len(self._queue)
                if is_over:
                    self._runner = None
                    return False
                self._changed.clear()
            was_woken = self._changed.wait(min(seconds, IDLE_SECONDS))

    def _send(self, batch: Sequence[Errand]) -> None:
        votes = self._asked(batch)
        now = self._clock.now()
        with self._guard:
            for errand, vote in zip(batch, votes, strict=True):
                if not self._is_closing:
                    self._queue.settle(errand, vote, now)
        for errand, vote in zip(batch, votes, strict=True):
            self._tell(self._server, errand, vote)

    def _asked(self, batch: Sequence[Errand]) -> Sequence[Any]:
        operations = [errand.operation for errand in batch]
        try:
            return self.store.execute_many(operations, deadline=self.store.clock.now() + PATIENCE)
        except SegmentedError as error:
            return [error] * len(batch)
        except Exception as error:  # noqa: BLE001  # the lane continues, and the waiting caller gets the error
            return [unexpected(error)] * len(batch)

    def _not_sent(self) -> NotAsked:
        return NotAsked(f"{self.store!r} was not asked in time")

"""The lane to one server, for threads: it sends the requests of its queue, one after the other.

Its thread starts with the first errand and ends when it had nothing to do for a while. So a store that is never closed
does not leave a thread behind.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import SegmentedError, StoreUnavailable
from segmented.stores.quorum.request_queue import Errand, RequestQueue
from segmented.stores.quorum.tally import NotAsked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.clock import Clock
    from segmented.plans.drivers import Store

    Tell = Callable[[int, Errand, object], None]
    """Called with the server, the errand, and the answer or error."""

PATIENCE: Final = 1.0
"""Seconds until an unanswered request counts as failed. No caller waits that long. But a late answer tells whether the
request was performed, and a failure does not."""
IDLE_SECONDS: Final = 10.0


class ThreadLane:
    """One server, and the thread that sends requests to it."""

    def __init__(self, server: int, store: Store, clock: Clock, *, pause: float, tell: Tell) -> None:
        """Do not start anything yet."""
        self.store = store
        self._server = server
        self._clock = clock
        self._tell = tell
        self._queue = RequestQueue(pause)
        self._chores: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def submit(self, errands: Sequence[Errand]) -> None:
        """Queue errands behind the earlier ones."""
        with self._changed:
            refused = errands if self._is_closing else self._queue.add(errands)
            self._wake()
        for errand in refused:
            self._tell(self._server, errand, self._not_sent())

    def call(self, chore: Callable[[], None]) -> None:
        """Queue another call for the lane's thread; the call must not raise."""
        with self._changed:
            self._chores.append(chore)
            self._wake()

    def close(self, seconds: float) -> None:
        """Send the remaining errands, and failed ones once more, and end; within `seconds` if the server answers."""
        with self._changed:
            self._is_closing = True
            if len(self._queue):
                self._wake()
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(seconds)

    def _wake(self) -> None:
        if self._thread is None:
            name = f"segmented-quorum-{self._server}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        else:
            self._changed.notify()

    # --- the lane's thread ---

    def _run(self) -> None:
        while self._is_busy():
            self._do_chores()
            with self._changed:
                batch, late = self._take()
            for errand in late:
                self._tell(self._server, errand, self._not_sent())
            if batch:
                self._send(batch)

    def _is_busy(self) -> bool:
        """Sleep until there is work; return False if there was none for a while, and the thread ends."""
        with self._changed:
            while True:
                seconds = self._queue.next_time() - self._clock.now()
                if self._chores or seconds <= 0 or (self._is_closing and len(self._queue)):
                    return True
                was_woken = not self._is_closing and self._changed.wait(min(seconds, IDLE_SECONDS))
                if not was_woken and not len(self._queue) and not self._chores:
                    self._thread = None
                    return False

    def _take(self) -> tuple[list[Errand], list[Errand]]:
        if self._is_closing:
            return self._queue.take_all()
        return self._queue.take(self._clock.now())

    def _send(self, batch: Sequence[Errand]) -> None:
        votes = self._asked(batch)
        now = self._clock.now()
        with self._changed:
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

    def _do_chores(self) -> None:
        while self._chores:
            self._chores.popleft()()

    def _not_sent(self) -> NotAsked:
        return NotAsked(f"{self.store!r} was not asked in time")


def unexpected(error: Exception) -> StoreUnavailable:
    """Translate any error into StoreUnavailable: it is unknown whether the operation ran."""
    failure = StoreUnavailable(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure

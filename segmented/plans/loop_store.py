"""An async store for threads: steps that block, such as those of an order database, run in a thread beside the loop."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from segmented.errors import SegmentedError, StoreUnavailable
from segmented.plans.tasks import begun

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from segmented.plans.drivers import AsyncStore
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")

WAIT_SECONDS_MAX: Final = 60.0
"""Maximum wait of a thread for its event loop; the store's own time-outs are shorter."""
LOOK_SECONDS: Final = 0.1
"""Interval in which a thread that waits looks whether its event loop has ended."""
STOPPED_SECONDS: Final = 1.0
"""Seconds after which a loop that was stopped, and may be run again, counts as ended."""
ENDED: Final = "the event loop of the store ended before the answer"


class LoopStore:
    """Runs operations of a thread on the event loop that an async store serves. It cannot wait for wake-ups."""

    def __init__(self, store: AsyncStore, loop: asyncio.AbstractEventLoop) -> None:
        """Use `store` on `loop`, which must be running while a thread asks."""
        self._store = store
        self._loop = loop
        self.clock = store.clock

    @property
    def wakeups(self) -> NoReturn:
        """Raise TypeError: plans that wait run on the event loop itself."""
        raise TypeError("a thread beside an event loop cannot wait for wake-ups: run this plan on the loop")

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run one operation atomically. Raises StoreUnavailable if the loop ends first."""
        return self._asked(partial(self._store.execute, operation, deadline=deadline))

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Run independent operations and return one answer or failure for each, in their order."""
        return self._asked(partial(self._store.execute_many, operations, deadline=deadline))

    def close(self) -> None:
        """Do nothing: the async store belongs to the loop."""

    def _asked(self, ask: Callable[[], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
        asking = begun(ask)
        try:
            future = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError as error:  # the loop is closed
            asking.close()
            raise StoreUnavailable(ENDED) from error
        if not self._answered(future):
            future.cancel()
            raise StoreUnavailable(ENDED)
        try:
            return future.result()
        except CancelledError as error:
            raise StoreUnavailable(ENDED) from error

    def _answered(self, future: Future[AnswerT]) -> bool:
        """Wait for the answer; return whether it came before the loop ended. A closed loop drops what it was given."""
        began = ran = time.monotonic()
        while not wait([future], LOOK_SECONDS).done:
            now = time.monotonic()
            ran = now if self._loop.is_running() else ran
            if self._loop.is_closed() or now - ran > STOPPED_SECONDS or now - began > WAIT_SECONDS_MAX:
                return future.done()
        return True

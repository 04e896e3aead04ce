"""An async store for threads: steps that block, such as those of an order database, run in a thread beside the loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, TimeoutError as WaitEnded
from math import inf
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from segmented.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from segmented.errors import SegmentedError
    from segmented.plans.drivers import AsyncStore
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")

WAIT_SECONDS_MAX: Final = 60.0
"""Maximum wait of a thread for its event loop; the store's own time-outs are shorter."""
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
        message = "a thread beside an event loop cannot wait for wake-ups: run this plan on the loop"
        raise TypeError(message)

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run one operation atomically. Raises StoreUnavailable if the loop ends first."""
        return self._asked(self._store.execute(operation, deadline=deadline))

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Run independent operations and return one answer or failure for each, in their order."""
        return self._asked(self._store.execute_many(operations, deadline=deadline))

    def close(self) -> None:
        """Do nothing: the async store belongs to the loop."""

    def _asked(self, ask: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        try:
            future = asyncio.run_coroutine_threadsafe(ask, self._loop)
        except RuntimeError as error:  # the loop is closed
            ask.close()
            raise StoreUnavailable(ENDED) from error
        try:
            return future.result(WAIT_SECONDS_MAX)
        except (CancelledError, WaitEnded) as error:
            future.cancel()
            raise StoreUnavailable(ENDED) from error

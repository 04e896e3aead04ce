"""The reference model behind the two store interfaces."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from segmented.clock import Clock, SystemClock
from segmented.stores.memory.model import MemoryModel
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups

if TYPE_CHECKING:
    from segmented.operations import Operation

AnswerT = TypeVar("AnswerT")


class MemoryStore:
    """The model for threads of one process. Keeps nothing beyond it: for tests, examples and dry runs."""

    def __init__(self, *, clock: Clock | None = None, model: MemoryModel | None = None) -> None:
        """Share `model` to let several stores see the same locks and pools."""
        self.clock: Clock = clock or SystemClock()
        self.wakeups = ThreadWakeups(self.clock)
        self._model = model or MemoryModel(self.clock)
        self._guard = threading.Lock()

    def execute(self, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation in one step."""
        with self._guard:
            answer = self._model.execute(operation)
            freed = self._model.take_freed()
        for channel in freed:
            self.wakeups.signal(channel)
        return answer

    def close(self) -> None:
        """Nothing to give up."""


class AsyncMemoryStore:
    """The model for one event loop."""

    def __init__(self, *, clock: Clock | None = None, model: MemoryModel | None = None) -> None:
        """Share `model` to let several stores see the same locks and pools."""
        self.clock: Clock = clock or SystemClock()
        self.wakeups = AsyncioWakeups(self.clock)
        self._model = model or MemoryModel(self.clock)

    async def execute(self, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation in one step."""
        answer = self._model.execute(operation)
        for channel in self._model.take_freed():
            self.wakeups.signal(channel)
        return answer

    async def close(self) -> None:
        """Nothing to give up."""

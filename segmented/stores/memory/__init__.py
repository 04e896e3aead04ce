"""Stores in memory, for tests, examples and dry runs: they run the scripts that ship, on a small Redis in Lua."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Self, TypeVar

from segmented.clock import Clock, SystemClock, checked_clock
from segmented.plans.store_kinds import NotPickled
from segmented.process import Guard
from segmented.stores.memory.model import MemoryModel
from segmented.stores.one_by_one import async_one_by_one, one_by_one
from segmented.stores.redis.exchange import Seen
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.errors import SegmentedError
    from segmented.protocol import Operation

__all__ = ["AsyncMemoryStore", "MemoryModel", "MemoryStore"]

AnswerT = TypeVar("AnswerT")


def _shown(store: MemoryStore | AsyncMemoryStore) -> str:
    clock = "" if isinstance(store.clock, SystemClock) else f"clock={store.clock!r}"
    return f"{type(store).__name__}({clock})"


class AsyncMemoryStore(NotPickled):
    """A store in memory for asyncio: for tests, examples and dry runs. Nothing is persistent."""

    def __init__(self, *, clock: Clock | None = None, model: MemoryModel | None = None) -> None:
        """Create a store; stores that share a `model` see the same locks and pools."""
        self.clock = checked_clock(clock)
        self.wakeups = AsyncioWakeups(self.clock)
        self.model = model or MemoryModel(self.clock)
        self._seen = Seen()
        self._guard = Guard()

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # it never waits
        """Perform one operation in one step."""
        with self._guard.lock:
            answer = self.model.execute_for(self._seen, operation)
            freed = self.model.take_freed()
        for channel in freed:
            self.wakeups.hear(channel, getattr(channel, "said", ""))
        return answer

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one by one; one answer or failure each."""
        return await async_one_by_one(self, operations, deadline)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return _shown(self)


# --- For threads: written by `make sync` from the classes above. ---


class MemoryStore(NotPickled):
    """A store in memory for threads: for tests, examples and dry runs. Nothing is persistent."""

    def __init__(self, *, clock: Clock | None = None, model: MemoryModel | None = None) -> None:
        """Create a store; stores that share a `model` see the same locks and pools."""
        self.clock = checked_clock(clock)
        self.wakeups = ThreadWakeups(self.clock)
        self.model = model or MemoryModel(self.clock)
        self._seen = Seen()
        self._guard = Guard()

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # it never waits
        """Perform one operation in one step."""
        with self._guard.lock:
            answer = self.model.execute_for(self._seen, operation)
            freed = self.model.take_freed()
        for channel in freed:
            self.wakeups.hear(channel, getattr(channel, "said", ""))
        return answer

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one by one; one answer or failure each."""
        return one_by_one(self, operations, deadline)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return _shown(self)

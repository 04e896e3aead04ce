"""A store that counts how often a lock was asked for in vain, because neither pools nor locks say it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, TypeVar

from segmented.models import Busy, Held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.errors import SegmentedError
    from segmented.plans.drivers import Store, Wakeups
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")


class CountingStore:
    """Passes everything on.

    It does not see the attempts that a release makes for the next in line, right behind itself: of those that succeed
    the sale itself is the count, and hardly one of them fails.
    """

    def __init__(self, store: Store) -> None:
        """Count what `store` answers."""
        self._store = store
        self.clock = store.clock
        self._in_vain = 0
        self._told = 0

    @property
    def wakeups(self) -> Wakeups:
        """Return the lines of this process."""
        return self._store.wakeups

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation."""
        answer = self._store.execute(operation, deadline=deadline)
        if isinstance(answer, Busy | Held):
            self._in_vain += 1
        return answer

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform many; none of them asks for a lock."""
        return self._store.execute_many(operations, deadline=deadline)

    def close(self) -> None:
        """Leave it to whoever opened it."""

    def attempts(self) -> int:
        """Return what a sale cost: its own attempt, and those in vain since the last sale, whosever they were."""
        in_vain = self._in_vain
        self._told, found = in_vain, in_vain - self._told
        return 1 + found

"""A store that counts failed lock attempts, because neither pools nor locks report them."""

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
    """Passes all operations on to a store.

    It does not see the attempts that a release makes for the next waiter: successful ones are counted as sales, and
    they rarely fail.
    """

    def __init__(self, store: Store) -> None:
        """Count what `store` answers."""
        self._store = store
        self.clock = store.clock
        self._in_vain = 0
        self._told = 0

    @property
    def wakeups(self) -> Wakeups:
        """Return the waiters of this process."""
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
        """Perform several operations; none of them requests a lock."""
        return self._store.execute_many(operations, deadline=deadline)

    def close(self) -> None:
        """Do nothing: the owner of the store closes it."""

    def attempts(self) -> int:
        """Return the attempts of a sale: its own, and all failed ones since the last sale, by any buyer."""
        in_vain = self._in_vain
        self._told, found = in_vain, in_vain - self._told
        return 1 + found

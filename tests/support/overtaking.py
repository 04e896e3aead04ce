"""A store through which something happens just before an operation: its process was held up there."""

from collections.abc import Callable
from math import inf
from typing import Any

from segmented import protocol as op
from segmented.plans.drivers import Store
from tests.support.dying import DyingStore, StepCounter


class OvertakenStore(DyingStore):
    """Something happens before the nth operation of a kind."""

    def __init__(self, store: Store, kind: type[op.Operation[Any]], nth: int, happens: Callable[[], object]) -> None:
        super().__init__(store, StepCounter())
        self._kind, self._left, self._happens = kind, nth, happens

    def execute(self, operation: op.Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # as its answer
        self._left -= isinstance(operation, self._kind)
        if self._left == 0:
            self._left = -1
            self._happens()
        return super().execute(operation, deadline=deadline)

"""The model of the pools' assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from segmented import protocol as op
from segmented.errors import AssignedElsewhere
from segmented.models.pools import Assigned

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.assignments import Assignment
    from segmented.protocol.pool.model_records import ModelPool


class AssigningModel:
    """Names the workers of pools."""

    def __init__(self, pool_of: Callable[[str], ModelPool], has: Callable[[str], bool]) -> None:
        """Create the model of the pools that `pool_of` returns or raises for."""
        self._pool = pool_of
        self._has = has

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {op.AssignPool: self.assign, op.CheckAssignment: self.look}

    def assign(self, operation: op.AssignPool) -> Assigned:
        """Name queue and step."""
        pool = self._pool(operation.sku)
        is_same = pool.assignment == operation.assignment
        pool.assignment = operation.assignment
        return Assigned(pool.state(), replay=is_same)

    def look(self, operation: op.CheckAssignment) -> None:
        """Compare a worker with the pool, if it is open."""
        if self._has(operation.sku):
            _check(self._pool(operation.sku), operation.assignment)


def check_worker(pool: ModelPool, operation: op.Operation[Any]) -> None:
    """Raise AssignedElsewhere for work of a worker that must not take the pool's orders."""
    is_work = isinstance(operation, op.TakeOrders | op.SweepOutbox)
    if is_work or (isinstance(operation, op.SettleMany) and operation.idle):
        _check(pool, operation.assignment)  # type: ignore[attr-defined]  # all three have it


def _check(pool: ModelPool, worker: Assignment) -> None:
    named = pool.assignment
    if not worker.takes(named.queue, named.step):
        raise AssignedElsewhere(pool.sku, named.queue or "", named.step or "")

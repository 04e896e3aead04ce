"""Dispatch of operations to the two halves of the model, locks and pools, with one clock for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from segmented import operations as op
from segmented.stores.memory.locks import LockModel
from segmented.stores.memory.pools import PoolModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock

AnswerT = TypeVar("AnswerT")


class MemoryModel:
    """A server's worth of locks and pools. One operation is one step; not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        """Take the server's time from `clock`."""
        self._freed: list[str] = []
        locks = LockModel(clock, self._freed.append)
        pools = PoolModel(clock, self._freed.append)
        self._bodies: dict[type[op.Operation[Any]], Callable[[Any], object]] = {
            op.AcquireLock: locks.acquire,
            op.RenewLock: locks.renew,
            op.ReleaseLock: locks.release,
            op.OpenPool: pools.open,
            op.ReadPool: pools.read,
            op.Reserve: pools.reserve,
            op.Grant: pools.grant,
            op.RenewGrant: pools.renew,
            op.Confirm: pools.confirm,
            op.Cancel: pools.cancel,
            op.Expire: pools.expire,
            op.ListDue: pools.list_due,
            op.ReadOrders: pools.read_orders,
            op.ScanOrders: pools.scan_orders,
            op.ReadLedger: pools.read_ledger,
        }

    def execute(self, operation: op.Operation[AnswerT]) -> AnswerT:
        """Perform one operation."""
        return cast("AnswerT", self._bodies[type(operation)](operation))

    def take_freed(self) -> list[str]:
        """Return the channels that got a message since the last call."""
        freed = self._freed[:]
        self._freed.clear()
        return freed

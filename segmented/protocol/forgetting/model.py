"""The model of forgetting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.protocol.forgetting.operations import Forgot
from segmented.protocol.forgetting.wire import cannot_forget

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Clock
    from segmented.protocol.pool.model_records import ModelPool

FINISHED: Final = ("confirmed", "cancelled", "expired", "refused")


class ForgettingModel:
    """Drops records of finished orders."""

    def __init__(self, clock: Clock, pool_of: Callable[[str], ModelPool]) -> None:
        """Create the model of the pools that `pool_of` returns or raises for."""
        self._clock = clock
        self._pool = pool_of

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {op.ForgetOrders: self.forget}

    def forget(self, operation: op.ForgetOrders) -> Forgot:
        """Drop records, once the notice is over."""
        pool, now_ms = self._pool(operation.sku), int(self._clock.now() * 1_000)
        if not pool.gated:
            raise cannot_forget(pool.sku, "not_gated")
        relayed = pool.relayed or (0, 0)
        if relayed[0] != pool.epoch or operation.up_to > relayed[1] or operation.up_to >= pool.ledger_start:
            raise cannot_forget(pool.sku, "not_trimmed")
        if pool.forgets_from is None:
            pool.forgets_from, pool.forgotten = now_ms + operation.notice_ms, 0
            return Forgot(0, 0, 0, operation.notice_ms)
        if pool.forgets_from > now_ms:
            return Forgot(0, 0, 0, min(pool.forgets_from - now_ms, operation.notice_ms))
        gone = [
            pool.orders.pop(order_id)
            for order_id, sequence in operation.orders
            if _may_go(pool, order_id, sequence) and sequence <= operation.up_to
        ]
        units = sum(record.quantity for record in gone if record.state == "confirmed")
        pool.lost += units
        pool.forgotten = (pool.forgotten or 0) + len(gone)
        pool.sold_before -= {record.order_id for record in gone}
        pool.undone -= {record.order_id for record in gone}
        return Forgot(len(gone), units, len(operation.orders), 0)


def _may_go(pool: ModelPool, order_id: str, sequence: int) -> bool:
    record = pool.orders.get(order_id)
    return record is not None and record.state in FINISHED and record.sequence == sequence

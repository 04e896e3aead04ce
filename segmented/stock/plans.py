"""The pool's protocols of more than one step."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from segmented import operations as op
from segmented.errors import StockError, StoreError
from segmented.keys import shard_keys
from segmented.models import Busy, Granted, Lost, Renewed, Reserved, Settled, SoldOut
from segmented.plans import Now, Plan, pause, perform, wait_for
from segmented.plans.waiting import MILLISECOND

if TYPE_CHECKING:
    from segmented.models import Order

DUE_BATCH: Final = 100
BUSY_TRIES_MAX: Final = 1_000
"""Each Busy of a reservation gave back 16 lapsed holds, so this many tries clear 16,000."""


def grant_plan(operation: op.Grant, timeout: float | None) -> Plan[tuple[Granted | SoldOut | Busy | Settled, float]]:
    """Wait up to `timeout` seconds for a free segment; returns the answer and the local time from which a lease counts.

    A wait that is cancelled gives back what it may have taken, unless another holder has the order. A store that
    did not answer may have taken the units: they stay reserved, and a repeat has them once the lease has lapsed.
    A second delivery, whose order another holder works on, wants no segment: it stands in nobody's way, and looks again
    when that holder's lease may have lapsed.
    """
    freed = shard_keys(operation.sku).freed
    began_at = yield from perform(Now())
    left = timeout
    while True:
        answer, asked_at = yield from wait_for(
            operation,
            channel=freed,
            timeout=left,
            is_busy=lambda answer: isinstance(answer, Busy) and not answer.is_in_hand,
            undo=op.Cancel(operation.sku, operation.order.order_id, operation.holder_id),
            stands=(StockError, StoreError),
        )
        if answer is None:  # the deadline came before this waiter's first turn
            return Busy(operation.order.order_id, 0, None), asked_at
        if not (isinstance(answer, Busy) and answer.is_in_hand) or left == 0:
            return answer, asked_at
        deadline = inf if timeout is None else began_at + timeout
        lapses_at = (yield from perform(Now())) + ((answer.free_in_ms or 0) + 1) * MILLISECOND
        yield from pause(f"{freed}:in-hand", min(lapses_at, deadline))
        left = None if timeout is None else max(0.0, deadline - (yield from perform(Now())))


def reserve_plan(sku: str, order: Order, hold_ms: int) -> Plan[Reserved | SoldOut | Busy | Settled]:
    """Reserve; while many lapsed holds are being given back, ask again, a bounded number of times."""
    answer = yield from perform(op.Reserve(sku, order, hold_ms))
    for _ in range(BUSY_TRIES_MAX):
        if not isinstance(answer, Busy):
            break
        answer = yield from perform(op.Reserve(sku, order, hold_ms))
    return answer


def renew_plan(operation: op.RenewGrant) -> Plan[tuple[Renewed | Lost, float]]:
    """Renew, and return the answer with the local time from which it counts."""
    asked_at = yield from perform(Now())
    return (yield from perform(operation)), asked_at


def expire_plan(sku: str, limit: int) -> Plan[tuple[Settled, ...]]:
    """Give back what lapsed holds kept, up to `limit` orders; returns those this call expired."""
    expired: list[Settled] = []
    while len(expired) < limit:
        due = yield from perform(op.ListDue(sku, min(DUE_BATCH, limit - len(expired))))
        settled = []
        for order_id in due:
            answer = yield from perform(op.Expire(sku, order_id))
            if answer is not None and not answer.replay:
                settled.append(answer)
        expired += settled
        if not settled:  # nothing is due, or a living lease protects what is
            break
    return tuple(expired)

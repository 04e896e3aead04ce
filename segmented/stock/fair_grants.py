"""Grants in order of arrival, across processes: only the holder of a fair lock, the door, waits for a segment.

Without it each process has a queue of its own, and a freed segment goes to whichever queue's head comes first. The door
only decides the order; units and segments stay guarded as usual. So if the door expires while its holder is paused, the
order of arrival is lost, never a unit.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import AcquireTimeout, StoreError
from segmented.locks.claim import new_holder_id
from segmented.locks.fair import FairClaim, FairTry
from segmented.locks.handle import acquire_plan
from segmented.models import Busy, Granted, Lost
from segmented.models.shards import SHARD_MARK
from segmented.plans import Now, Plan, perform
from segmented.plans.waiting import undone
from segmented.stock.plans import grant_plan

if TYPE_CHECKING:
    from segmented.models import Refusal

DOOR_TTL_MS: Final = 10_000
ROUND_SECONDS: Final = 3.0
"""Seconds to wait for a segment before the door is renewed."""

Found = tuple["Granted | Refusal", float]


def fair_grant_plan(operation: op.Grant, timeout: float | None) -> Plan[Found]:
    """Grant in order of arrival; otherwise as `grant_plan`. An order that is already known does not wait."""
    (record,) = yield from perform(op.ReadOrders(operation.sku, (operation.order.order_id,)))
    if record is not None:
        return (yield from grant_plan(operation, timeout))
    deadline = inf if timeout is None else (yield from perform(Now())) + timeout
    kind = FairTry if timeout == 0 else FairClaim
    door = kind(f"pool:{operation.sku}:door".replace(SHARD_MARK, " shard "), new_holder_id(), DOOR_TTL_MS)
    while True:
        try:
            yield from acquire_plan(door, timeout)
        except AcquireTimeout:
            return Busy(operation.order.order_id, 0, None), (yield from perform(Now()))
        found: Found | None = None
        try:
            found = yield from _inside(operation, door, deadline)
            yield from _leave(door)
        except GeneratorExit:  # the process is gone: the door's lease expires
            raise
        except BaseException:
            if found is not None and isinstance(found[0], Granted) and not found[0].replay:
                # Nobody learns of the grant, so its units go back, as those of an attempt that was cancelled.
                cancelling = partial(op.Cancel, operation.sku, operation.order.order_id, operation.holder_id)
                yield from undone(cancelling, deadline)
            yield from _leave(door)
            raise
        if found is not None:
            return found
        if timeout is not None:
            timeout = max(0.0, deadline - (yield from perform(Now())))


def _inside(operation: op.Grant, door: FairTry, deadline: float) -> Plan[Found | None]:
    """Wait for a segment while holding the door; None if the door was lost meanwhile."""
    while True:
        left = max(0.0, deadline - (yield from perform(Now())))
        answer, asked_at = yield from grant_plan(operation, min(left, ROUND_SECONDS))
        if not isinstance(answer, Busy) or answer.is_in_hand or left <= ROUND_SECONDS:
            return answer, asked_at
        if isinstance((yield from perform(door.renewing(DOOR_TTL_MS))), Lost):
            return None


def _leave(door: FairTry) -> Plan[None]:
    with suppress(StoreError):  # its lease expires on its own
        yield from perform(door.releasing())

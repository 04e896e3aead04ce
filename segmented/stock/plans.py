"""Plans of the pool's operations that take more than one step."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, Literal

from segmented import protocol as op
from segmented.errors import StockError, StoreError
from segmented.keys import shard_keys
from segmented.models import Busy, Granted, Lost, Renewed, Settled
from segmented.models.submitted import BegunOrder
from segmented.plans import Now, Plan, pause, perform, wait_for
from segmented.plans.waiting import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from segmented.errors import SegmentedError
    from segmented.models import OrderRecord, Refusal, Taken
    from segmented.models.submitted import TakenOrders

DUE_BATCH: Final = 100
"""Expired holds processed in one step, so that other requests are served in between."""
COMING_BACK_MAX: Final = 64
"""Maximum number of tries of a grant that does not wait, while expired holds are returned for it."""
Verdict = Literal["confirm", "release", "wait"]
"""A resolver's decision on an order whose hold has expired: sold after all, returned, or not known yet."""
BUSY_TRIES_MAX: Final = 1_000
"""Each Busy of a reservation returned 16 expired holds, so this many tries clear 16,000."""


def grant_plan(operation: op.Grant, timeout: float | None) -> Plan[tuple[Granted | Refusal, float]]:
    """Wait up to `timeout` seconds for a free segment; return the answer and the local start time of the lease.

    A cancelled wait returns what it may have taken, unless another holder has the order. If the store did not answer,
    it may have taken the units: they stay reserved, and a repeat gets them once the lease has expired. A second
    delivery of an order that another holder is processing does not queue for a segment; it tries again when that
    holder's lease may have expired.
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
            undo=lambda: op.Cancel(operation.sku, operation.order.order_id, operation.holder_id, unheard=True),
            stands=(StockError, StoreError),
            handed="kept late",
        )
        for _ in range(COMING_BACK_MAX):
            if left != 0 or not isinstance(answer, Busy) or answer.is_in_hand or answer.free_in_ms != 0:
                break
            asked_at = yield from perform(Now())  # expired holds are being returned, a few with each call
            answer = yield from perform(operation)
        if answer is None:  # the deadline came before this waiter's first turn
            return Busy(operation.order.order_id, 0, None), asked_at
        if not (isinstance(answer, Busy) and answer.is_in_hand) or left == 0:
            return answer, asked_at
        deadline = inf if timeout is None else began_at + timeout
        lapses_at = (yield from perform(Now())) + ((answer.free_in_ms or 0) + 1) * MILLISECOND
        yield from pause(f"{freed}:in-hand", min(lapses_at, deadline))
        left = None if timeout is None else max(0.0, deadline - (yield from perform(Now())))


def reserve_plan(operation: op.Reserve) -> Plan[Taken]:
    """Reserve; while many expired holds are being returned, try again, a bounded number of times."""
    answer = yield from perform(operation)
    for _ in range(BUSY_TRIES_MAX):
        if not isinstance(answer, Busy):
            break
        answer = yield from perform(operation)
    return answer


def reserve_many_plan(operation: op.ReserveMany) -> Plan[list[Taken | SegmentedError]]:
    """Reserve many, up to 1,000 in a step; orders that must wait for expired holds are tried again."""
    answers: list[Taken | SegmentedError] = []
    for first in range(0, len(operation.orders), op.BATCH_MAX):
        page = operation.orders[first : first + op.BATCH_MAX]
        answers += yield from perform(replace(operation, orders=page))
    return (yield from while_busy_plan(operation, answers))


def while_busy_plan(
    operation: op.ReserveMany, answers: list[Taken | SegmentedError]
) -> Plan[list[Taken | SegmentedError]]:
    """Try again the orders that must wait for expired holds, a bounded number of times."""
    for _ in range(BUSY_TRIES_MAX):
        left = [index for index, answer in enumerate(answers) if type(answer) is Busy][: op.BATCH_MAX]
        if not left:
            break
        again = replace(operation, orders=tuple(operation.orders[index] for index in left))
        for index, answer in zip(left, (yield from perform(again)), strict=True):
            answers[index] = answer
    return answers


def settle_many_plan(operation: op.SettleMany) -> Plan[list[Settled | SegmentedError | None]]:
    """End many reservations, up to 1,000 in a step."""
    answers: list[Settled | SegmentedError | None] = []
    for first in range(0, len(operation.order_ids), op.BATCH_MAX):
        page = operation.order_ids[first : first + op.BATCH_MAX]
        answers += yield from perform(replace(operation, order_ids=page))
    return answers


def renew_plan(operation: op.RenewGrant) -> Plan[tuple[Renewed | Lost, float]]:
    """Renew, and return the answer with the local time from which it counts."""
    asked_at = yield from perform(Now())
    return (yield from perform(operation)), asked_at


def expire_plan(sku: str, limit: int) -> Plan[tuple[Settled, ...]]:
    """Give back the units of expired holds, up to `limit` orders, a bounded number in one step."""
    expired: list[Settled] = []
    is_more_due = True
    while is_more_due and len(expired) < limit:
        settled, is_more_due = yield from perform(op.ExpireDue(sku, min(DUE_BATCH, limit - len(expired))))
        expired += settled
        if not settled:  # live leases protect the due orders
            break
    return tuple(expired)


def due_plan(sku: str, limit: int) -> Plan[list[OrderRecord]]:
    """Read up to `limit` orders whose hold has expired, the longest expired first."""
    due = (yield from perform(op.ListDue(sku, limit)))[:limit]
    records: list[OrderRecord] = []
    for first in range(0, len(due), op.BATCH_MAX):
        found = yield from perform(op.ReadOrders(sku, due[first : first + op.BATCH_MAX]))
        records += [record for record in found if record is not None and record.state == "reserved"]
    return records


def resolve_plan(sku: str, verdicts: Mapping[str, Verdict]) -> Plan[tuple[Settled, ...]]:
    """Carry out a resolver's verdict on each order; return what this call decided."""
    decided: list[Settled] = []
    for verdict, state in (("confirm", "confirmed"), ("release", "expired")):
        order_ids = tuple(order_id for order_id, found in verdicts.items() if found == verdict)
        operation = op.SettleMany(sku, state, order_ids, decided=True)  # type: ignore[arg-type]  # both are states
        answers = yield from settle_many_plan(operation)
        decided += [answer for answer in answers if isinstance(answer, Settled) and not answer.replay]
    return tuple(decided)


def take_plan(operation: op.TakeOrders, channel: str, timeout: float) -> Plan[tuple[TakenOrders | None, float]]:
    """Begin work; if it needs a segment and none is free, wait for one. None: the deadline came before a turn.

    Also returns the local time from which the orders are the worker's.
    """
    return (yield from wait_for(operation, channel=channel, timeout=timeout, is_busy=_needs_segment))


def _needs_segment(taken: TakenOrders) -> bool:
    is_any_begun = any(isinstance(one, BegunOrder) for one in taken.orders)
    return not is_any_begun and any(isinstance(one, Busy) and not one.is_in_hand for one in taken.orders)

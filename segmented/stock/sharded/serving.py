"""Orders that their home shard cannot serve by itself: bring units there and ask again, or refuse exactly.

One body for reservations and grants: an `Attempt` asks the home shard once, and says when it did.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from segmented import operations as op
from segmented.errors import SegmentedError, StoreRefused
from segmented.models import Busy, LimitReached, SoldOut, TooFew
from segmented.plans import Now, Plan, perform
from segmented.stock.fair_grants import fair_grant_plan
from segmented.stock.plans import grant_plan, reserve_plan

if TYPE_CHECKING:
    from segmented.models import Granted, Order, Refusal, Restocked, Shard, Taken
    from segmented.stock.sharded.gathering import Gathering

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)

TRIES_MAX: Final = 1_000
"""Each try that fails has seen other orders take the units, or lapsed holds given back."""


class Attempt(Protocol[AnswerT_co]):
    """Asks the home shard once; returns the answer and the local time from which a lease counts."""

    def __call__(self, *, partial: bool = False, is_final: bool = False) -> Plan[tuple[AnswerT_co, float]]:
        """With `partial`, take what is left if that is less; `is_final`: a refusal may be kept as the order's state."""


def served_plan(
    gathering: Gathering,
    home: Shard,
    order: Order,
    attempt: Attempt[AnswerT],
    *,
    partial: bool,
    keeps_refusal: bool = False,
    first: tuple[AnswerT, float] | None = None,
) -> Plan[tuple[AnswerT | SoldOut | Busy, float]]:
    """Serve an order from all shards; `first` is what the home shard has answered already, asked without `partial`."""
    answer, asked_at = first or (yield from attempt())
    for _ in range(TRIES_MAX):
        if isinstance(answer, SoldOut) and not answer.replay:
            free = yield from gathering.bring_plan(home, order.quantity)
            if free is None:  # they are there, or were a moment ago
                answer, asked_at = yield from attempt()
            elif partial and free.available:
                yield from gathering.bring_plan(home, free.available)
                answer, asked_at = yield from attempt(partial=True)
            else:
                may_have_twin = free.asked_at >= asked_at and free.sequences[home.number] != answer.sequence
                if keeps_refusal or may_have_twin:  # the same order, asked for twice, may be served by now
                    answer, asked_at = yield from attempt(partial=partial, is_final=True)
                    if not isinstance(answer, SoldOut) or answer.replay:
                        return answer, asked_at
                now = yield from perform(Now())
                age_ms = int((now - free.asked_at) * 1_000)
                refused = replace(answer, available=free.available, reserved=free.reserved, age_ms=age_ms)
                return refused, free.asked_at
        elif partial and isinstance(answer, LimitReached) and answer.taken < answer.limit:
            left = answer.limit - answer.taken
            free = yield from gathering.bring_plan(home, left)
            if free is not None and free.available:
                yield from gathering.bring_plan(home, free.available)
            answer, asked_at = yield from attempt(partial=True)
        else:
            return answer, asked_at
    return Busy(order.order_id, 0, 0), asked_at


def reserving(operation: op.Reserve, *, is_new: bool) -> Attempt[Taken]:
    """Attempt a reservation. One that is cancelled is taken back if the order was not known a moment before.

    It is new if it has been refused already; else the first attempt finds out, and may be a repeat of one that stands.
    """

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Taken, float]]:
        nonlocal is_new
        del is_final  # refusals of reservations are not kept
        asked_at = yield from perform(Now())
        try:
            answer = yield from reserve_plan(replace(operation, partial=partial))
        except (GeneratorExit, SegmentedError):
            raise
        except BaseException:
            if is_new:
                with suppress(SegmentedError):
                    yield from perform(op.Cancel(operation.sku, operation.order.order_id))
            raise
        is_new = True
        return answer, asked_at

    return attempt


def granting(operation: op.Grant, timeout: float | None, *, fair: bool) -> Attempt[Granted | Refusal]:
    """Attempt a grant. All attempts together wait for a segment until `timeout`, which counts from the first."""
    deadline: float | None = None

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Granted | Refusal, float]]:
        nonlocal deadline
        now = yield from perform(Now())
        if deadline is None:
            deadline = inf if timeout is None else now + timeout
        left = None if timeout is None else max(0.0, deadline - now)
        asked = replace(operation, partial=partial, keep_refusal=operation.keep_refusal and is_final)
        return (yield from (fair_grant_plan if fair else grant_plan)(asked, left))

    return attempt


def withdrawn_plan(gathering: Gathering, home: Shard, operation: op.Withdraw) -> Plan[Restocked | TooFew]:
    """Take units out of one shard, after those of the others were brought there if need be."""
    for _ in range(TRIES_MAX):
        answer = yield from perform(operation)
        if not isinstance(answer, TooFew):
            return answer
        free = yield from gathering.bring_plan(home, operation.units)
        if free is not None:
            return replace(answer, available=free.available)
    message = f"orders took the units of {gathering.directory.sku!r} faster than they could be withdrawn: try again"
    raise StoreRefused(message)

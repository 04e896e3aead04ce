"""Orders that their home shard cannot serve by itself: bring units there and ask again, or refuse exactly.

One body for reservations and grants: an `Attempt` asks the home shard once, and says when it did.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from segmented.errors import SegmentedError, StoreRefused
from segmented.models import Busy, LimitReached, SoldOut, TooFew
from segmented.plans import Now, Plan, perform
from segmented.stock.fair_grants import fair_grant_plan
from segmented.stock.plans import grant_plan, reserve_many_plan, reserve_plan

if TYPE_CHECKING:
    from segmented import protocol as op
    from segmented.models import Granted, Order, Refusal, Restocked, Shard, Taken
    from segmented.stock.sharded.gathering import Gathering

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)

TRIES_MAX: Final = 200
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
    deadline: float = inf,
    first: tuple[AnswerT, float] | None = None,
) -> Plan[tuple[AnswerT | SoldOut | Busy, float]]:
    """Serve an order from all shards; `first` is what the home shard has answered already, asked without `partial`.

    Nobody is waited for beyond the local time `deadline`, but for answers.
    """
    answer, asked_at = first or (yield from attempt())
    for _ in range(TRIES_MAX):
        if isinstance(answer, SoldOut) and not answer.replay:
            free = yield from gathering.bring_plan(home, order.quantity, deadline)
            if free is None:  # they are there, or were a moment ago
                answer, asked_at = yield from attempt()
            elif partial and free.available:
                yield from gathering.bring_plan(home, free.available, deadline)
                answer, asked_at = yield from attempt(partial=True)
            else:
                may_have_twin = free.asked_at >= asked_at and free.sequences[home.number] != answer.sequence
                if keeps_refusal or may_have_twin:  # the same order, asked for twice, may be served by now
                    answer, asked_at = yield from attempt(partial=partial, is_final=True)
                    if isinstance(answer, Busy) and not answer.is_in_hand:  # units are there by now, but no segment
                        answer, asked_at = yield from attempt(partial=partial)
                        continue
                    if not isinstance(answer, SoldOut) or answer.replay:
                        return answer, asked_at
                now = yield from perform(Now())
                age_ms = int((now - free.asked_at) * 1_000)
                refused = replace(answer, available=free.available, reserved=free.reserved, age_ms=age_ms)
                return refused, free.asked_at
        elif partial and isinstance(answer, LimitReached) and answer.taken < answer.limit:
            left = answer.limit - answer.taken
            free = yield from gathering.bring_plan(home, left, deadline)
            if free is not None and free.available:
                yield from gathering.bring_plan(home, free.available, deadline)
            answer, asked_at = yield from attempt(partial=True)
        else:
            return answer, asked_at
    return Busy(order.order_id, 0, 0), asked_at


def reserving(operation: op.Reserve) -> Attempt[Taken]:
    """Attempt a reservation."""

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Taken, float]]:
        del is_final  # refusals of reservations are not kept
        asked_at = yield from perform(Now())
        return (yield from reserve_plan(replace(operation, partial=partial))), asked_at

    return attempt


def reserving_one(operation: op.ReserveMany) -> Attempt[Taken]:
    """Attempt the reservation of the one order of a batch; a submitted one enters the outbox in the same step."""

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Taken, float]]:
        del is_final  # refusals of reservations are not kept
        asked_at = yield from perform(Now())
        (answer,) = yield from reserve_many_plan(replace(operation, partial=partial))
        if isinstance(answer, SegmentedError):
            raise answer
        return answer, asked_at

    return attempt


def granting(operation: op.Grant, timeout: float | None, began_at: float, *, fair: bool) -> Attempt[Granted | Refusal]:
    """Attempt a grant. All together wait for a segment until `timeout` after `began_at`; a final one does not wait."""
    deadline = inf if timeout is None else began_at + timeout

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Granted | Refusal, float]]:
        now = yield from perform(Now())
        left = 0.0 if is_final else None if timeout is None else max(0.0, deadline - now)
        asked = replace(operation, partial=partial, keep_refusal=operation.keep_refusal and is_final)
        return (yield from (fair_grant_plan if fair and not is_final else grant_plan)(asked, left))

    return attempt


def withdrawn_plan(gathering: Gathering, home: Shard, operation: op.Withdraw) -> Plan[Restocked | TooFew]:
    """Take units out of one shard, after those of the others were brought there if need be."""
    for _ in range(TRIES_MAX):
        answer = yield from perform(operation)
        if not isinstance(answer, TooFew):
            return answer
        free = yield from gathering.bring_plan(home, operation.units)
        if free is not None:
            answer = yield from perform(operation)  # the same withdrawal, asked for twice, may be done by now
            return replace(answer, available=free.available) if isinstance(answer, TooFew) else answer
    message = f"orders took the units of {gathering.directory.sku!r} faster than they could be withdrawn: try again"
    raise StoreRefused(message)

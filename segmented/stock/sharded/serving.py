"""Serve an order that its home shard cannot serve alone: bring units there and try again, or refuse exactly.

Reservations and grants share this code: an `Attempt` asks the home shard once, and returns the time of its request.
A submitted order goes to its home shard's outbox, and workers are notified shard by shard: to a worker a shard is a
pool like any other; its envelopes, sweep and dead letters are those of that pool.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import ceil, inf
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from segmented.errors import InvalidInput, SegmentedError, StoreRefused
from segmented.models import Busy, Granted, LimitReached, Order, Refusal, Restocked, Shard, SoldOut, Taken, TooFew
from segmented.plans import Now, Plan, perform
from segmented.stock.outbox import UNASKED, Outbox, to_publish
from segmented.stock.plans import fair_grant_plan, grant_plan, reserve_many_plan, reserve_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented import protocol as op
    from segmented.stock.sharded.gathering import Gathering

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)

TRIES_MAX: Final = 200
"""Each failed try means that other orders took the units, or that expired holds were returned."""
Submission = tuple["Shard", "Taken"] | SegmentedError
"""A submitted order's answer and its home, or why it was not accepted."""


class Attempt(Protocol[AnswerT_co]):
    """Asks the home shard once; returns the answer and the local start time of a lease."""

    def __call__(self, *, partial: bool = False, is_final: bool = False) -> Plan[tuple[AnswerT_co, float]]:
        """Ask; `partial` accepts fewer units if fewer are left, `is_final` lets the order's state keep a refusal."""


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
    """Serve an order from all shards; `first` is the home shard's earlier answer, requested without `partial`.

    Waits for no other process beyond the local time `deadline`, except for answers.
    """
    answer, asked_at = first or (yield from attempt())
    for _ in range(TRIES_MAX):
        if isinstance(answer, SoldOut) and not answer.replay:
            free = yield from gathering.bring_plan(home, order.quantity, deadline)
            if free is None:  # the units are there, or were a moment ago
                answer, asked_at = yield from attempt()
            elif partial and free.available:
                yield from gathering.bring_plan(home, free.available, deadline)
                answer, asked_at = yield from attempt(partial=True)
            else:
                may_have_twin = free.asked_at >= asked_at and free.sequences[home.number] != answer.sequence
                if keeps_refusal or may_have_twin:  # a concurrent call for the same order may have been served
                    answer, asked_at = yield from attempt(partial=partial, is_final=True)
                    if isinstance(answer, Busy) and not answer.is_in_hand:  # units have come, but no segment is free
                        answer, asked_at = yield from attempt(partial=partial)
                        continue
                    if not isinstance(answer, SoldOut) or answer.replay:
                        return answer, asked_at
                now = yield from perform(Now())
                age_ms = ceil((now - free.asked_at) * 1_000)
                refused = replace(
                    answer, available=free.available, reserved=free.reserved, age_ms=age_ms, free_in_ms=free.free_in_ms
                )
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
    """Build the attempt of a reservation."""

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Taken, float]]:
        del is_final  # refusals of reservations are not kept
        asked_at = yield from perform(Now())
        return (yield from reserve_plan(replace(operation, partial=partial))), asked_at

    return attempt


def reserving_one(operation: op.ReserveMany) -> Attempt[Taken]:
    """Build the attempt for a batch of one order; a submitted order enters the outbox in the same step."""

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Taken, float]]:
        del is_final  # refusals of reservations are not kept
        asked_at = yield from perform(Now())
        (answer,) = yield from reserve_many_plan(replace(operation, partial=partial))
        if isinstance(answer, SegmentedError):
            raise answer
        return answer, asked_at

    return attempt


def granting(operation: op.Grant, timeout: float | None, began_at: float, *, fair: bool) -> Attempt[Granted | Refusal]:
    """Build the attempt of a grant. All attempts wait until `timeout` after `began_at`; a final one does not wait."""
    deadline = inf if timeout is None else began_at + timeout

    def attempt(*, partial: bool = False, is_final: bool = False) -> Plan[tuple[Granted | Refusal, float]]:
        now = yield from perform(Now())
        left = 0.0 if is_final else None if timeout is None else max(0.0, deadline - now)
        asked = replace(operation, partial=partial, keep_refusal=operation.keep_refusal and is_final)
        return (yield from (fair_grant_plan if fair and not is_final else grant_plan)(asked, left))

    return attempt


def withdrawn_plan(
    gathering: Gathering, home: Shard, units: int, attempt: Callable[[], Plan[Restocked | TooFew]]
) -> Plan[Restocked | TooFew]:
    """Remove units from one shard by `attempt`, after bringing those of the others there if necessary."""
    for _ in range(TRIES_MAX):
        answer = yield from attempt()
        if not isinstance(answer, TooFew) or answer.available >= units:  # a rebuild has undone it: the units are sold
            return answer
        free = yield from gathering.bring_plan(home, units)
        if free is not None:
            answer = yield from attempt()  # a concurrent call of the same withdrawal may have finished
            return replace(answer, available=free.available) if isinstance(answer, TooFew) else answer
    message = f"orders took the units of {gathering.directory.sku!r} faster than they could be withdrawn: try again"
    raise StoreRefused(message)


def sharded_outbox(sku: str, outbox: Outbox | None) -> Outbox:
    """Return how a pool in shards submits orders. Raises InvalidInput for an outbox that would refuse wrongly."""
    found = outbox or UNASKED
    if found.decides != "at acceptance":
        raise InvalidInput(
            f"decides={found.decides!r} is not supported for {sku!r} in shards: a worker decides in one shard, and "
            "would refuse orders while another has their units"
        )
    return found


def publish(outbox: Outbox, submissions: Iterable[Submission]) -> None:
    """Notify workers, in messages that have orders of one shard each."""
    if outbox.publisher is None:
        return
    answers: defaultdict[Shard, list[Taken]] = defaultdict(list)
    for one in submissions:
        if not isinstance(one, SegmentedError):
            answers[one[0]].append(one[1])
    for home, found in answers.items():
        for segment, waiting in to_publish(found).items():
            outbox.publisher.put(home, waiting, segment)

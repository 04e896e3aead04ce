"""The sold-out mark: for a short time after a refusal, a process itself refuses what the server would refuse again.

A refusal reports how many units were free. Until the mark is too old, every new order that wants more than that is
refused here. So a refusal is exact as of that age, and a unit returned by another process can be bought everywhere
within it. Units returned by this process end the mark.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from segmented import events
from segmented.clock import Clock, Duration, in_seconds
from segmented.errors import InvalidInput, SegmentedError
from segmented.events.hub import sku_label
from segmented.models import Closed, Granted, LimitReached, Order, Refusal, SoldOut, Taken, shortened
from segmented.stock.plans import fair_grant_plan, grant_plan, reserve_many_plan, reserve_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented import protocol as op
    from segmented.plans import Plan

AnswerT = TypeVar("AnswerT")

KNOWN_MAX: Final = 100_000
"""Number of order ids remembered because they may have units: up to about 10 MB."""
SECONDS_MAX: Final = 60.0
NOTHING_TAKEN: Final = (SoldOut, Closed, LimitReached)
"""Answers after which an order has no units, so that a repeat is a new attempt."""


class SoldOutMark:
    """One pool's mark, for threads and for asyncio."""

    def __init__(self, lasts: Duration, clock: Clock, sku: str = "") -> None:
        """Create the mark of pool `sku` that lasts as long as `lasts`; 0 turns it off.

        If a sink is installed, it reports its refusals, which no store sees.
        """
        seconds = in_seconds(lasts)
        if type(seconds) not in {int, float} or not 0 <= seconds <= SECONDS_MAX:
            raise InvalidInput(f"sold-out mark of {shortened(seconds)} s must be between 0 and {SECONDS_MAX:g} s")
        self.seconds = seconds
        self._sku, self._is_reported = sku, events.is_on()
        self._clock = clock
        self._guard = Lock()
        self._found: tuple[SoldOut, float] | None = None
        self._returned_at = float("-inf")
        self._known: dict[str, bool] = {}
        """Order id -> whether an answer said that it has, or had, units; False until one has come."""
        self.refused_count = 0
        self.on_clear: Callable[[], None] | None = None
        """Called when units came back here; for a shard, it notifies the pool as a whole."""

    def refusal(self, order: Order, *, partial: bool) -> SoldOut | None:
        """Return the local refusal of an order, or None to ask the server and then `note` its answer."""
        order_id = order.order_id
        with self._guard:
            found = self._found
            if found is not None and order_id not in self._known:
                answer, asked_at = found
                age = self._clock.now() - asked_at
                if age >= self.seconds:
                    self._found = None
                elif (1 if partial else order.quantity) > answer.available:
                    self.refused_count += 1
                    if self._is_reported:
                        labels = (sku_label(self._sku), "refused", "sold_out")
                        events.count("segmented.order.answers", 1, labels)
                    return SoldOut(
                        order_id,
                        order.quantity,
                        answer.available,
                        answer.reserved,
                        answer.sequence,
                        by_mark=True,
                        age_ms=ceil(age * 1_000),
                        epoch=answer.epoch,
                        free_in_ms=answer.free_in_ms,
                    )
            self._known.setdefault(order_id, False)  # it may have units now: a repeat gets its first answer
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]
        return None

    def note(self, order_id: str, answer: object, asked_at: float, *, is_kept: bool = False) -> None:
        """Remember the server's answer to a request of local time `asked_at`; `is_kept`: it stores even a refusal."""
        has_nothing = isinstance(answer, NOTHING_TAKEN) and not (isinstance(answer, SoldOut) and answer.replay)
        with self._guard:
            if is_kept or not has_nothing:
                self._known[order_id] = True
            elif not self._known.get(order_id):
                self._known.pop(order_id, None)
            if has_nothing and isinstance(answer, SoldOut) and asked_at > self._returned_at:
                self._found = answer, asked_at

    def now(self) -> float:
        """Return the local time to pass to `note`."""
        return self._clock.now()

    def clear(self) -> None:
        """End the mark, since units came back; answers to earlier requests no longer count."""
        if self.seconds:
            with self._guard:
                self._found, self._returned_at = None, self._clock.now()
        if self.on_clear is not None:
            self.on_clear()


# --- the plans of the pool, with its mark ---


def grant_marked(
    mark: SoldOutMark, operation: op.Grant, timeout: float | None, *, fair: bool
) -> Plan[tuple[Granted | Refusal, float]]:
    """Return the plan of a grant, unless the mark refuses."""
    plan = (fair_grant_plan if fair else grant_plan)(operation, timeout)
    if not mark.seconds:
        return plan
    return marked(mark, operation.order, plan, partial=operation.partial, is_kept=operation.keep_refusal)


def marked(
    mark: SoldOutMark, order: Order, plan: Plan[tuple[AnswerT, float]], *, partial: bool, is_kept: bool = False
) -> Plan[tuple[AnswerT | SoldOut, float]]:
    """Run a plan that serves an order, unless the mark refuses; the plan returns its answer and the request's time.

    Only the server can give a refusal that is kept as the order's state (`is_kept`).
    """
    if mark.seconds and not is_kept:
        refused = mark.refusal(order, partial=partial)
        if refused is not None:
            return refused, mark.now()
    answer, asked_at = yield from plan
    if mark.seconds:
        mark.note(order.order_id, answer, asked_at, is_kept=is_kept)
    return answer, asked_at


def reserve_marked(mark: SoldOutMark, operation: op.Reserve) -> Plan[Taken]:
    """Return the plan of a reservation, unless the mark refuses."""
    return _reserve_marked(mark, operation) if mark.seconds else reserve_plan(operation)


def _reserve_marked(mark: SoldOutMark, operation: op.Reserve) -> Plan[Taken]:
    refused = mark.refusal(operation.order, partial=operation.partial)
    if refused is not None:
        return refused
    asked_at = mark.now()
    answer = yield from reserve_plan(operation)
    mark.note(operation.order.order_id, answer, asked_at)
    return answer


def reserve_many_marked(
    mark: SoldOutMark,
    operation: op.ReserveMany,
    plan_of: Callable[[op.ReserveMany], Plan[list[Taken | SegmentedError]]] = reserve_many_plan,
) -> Plan[list[Taken | SegmentedError]]:
    """Return the plan that reserves, by `plan_of`, for the orders that the mark does not refuse."""
    return _reserve_many_marked(mark, operation, plan_of) if mark.seconds else plan_of(operation)


def _reserve_many_marked(
    mark: SoldOutMark,
    operation: op.ReserveMany,
    plan_of: Callable[[op.ReserveMany], Plan[list[Taken | SegmentedError]]],
) -> Plan[list[Taken | SegmentedError]]:
    answers: dict[int, Taken | SegmentedError] = {}
    asked: list[int] = []
    for index, order in enumerate(operation.orders):
        refused = mark.refusal(order, partial=operation.partial)
        if refused is None:
            asked.append(index)
        else:
            answers[index] = refused
    if asked:
        asked_at = mark.now()
        left = replace(operation, orders=tuple(operation.orders[index] for index in asked))
        for index, answer in zip(asked, (yield from plan_of(left)), strict=True):
            answers[index] = answer
            age_ms = answer.age_ms if isinstance(answer, SoldOut) else 0  # of shards that were asked before this call
            mark.note(operation.orders[index].order_id, answer, asked_at - age_ms / 1_000)
    return [answers[index] for index in range(len(operation.orders))]


def returning(mark: SoldOutMark, plan: Plan[AnswerT]) -> Plan[AnswerT]:
    """Run a plan that may return units, and clear the mark, however the plan ends."""
    try:
        return (yield from plan)
    finally:
        mark.clear()

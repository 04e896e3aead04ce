"""Waiting for a lock or a segment, without polling.

Try, subscribe, confirm the subscription, try again, then park until a wake-up, the holder's remaining time to live, or
the deadline, whichever is first. The second try covers a release that came before the subscription; the time to live
covers a holder that died without a release. (Redisson waits in this order.)
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from segmented import events
from segmented.errors import SegmentedError, StockError, StoreUnavailable
from segmented.plans.effects import Join, Leave, Listen, Now, Park, Plan, Try, Within, perform
from segmented.plans.line import AT_ONCE, Offer, Place
from segmented.protocol.lock import NEWCOMER

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.protocol import Operation

MILLISECOND = 0.001
ATTEMPT_SECONDS = 0.1
"""Seconds for an attempt that begins just before the deadline; a healthy server answers sooner."""
TRY_SECONDS = 2.0
"""Seconds for the only attempt of a wait of 0, connecting included."""
UNANSWERED = "no answer yet to the attempt that was made when the thing was freed"
LOOK_SECONDS = 12.0
"""Seconds after which the head of a queue checks again in any case: a key may vanish without a message."""
GONE_SECONDS: Final = 0.8
"""The same for a lock and a grant: a waiter learns within a second that FLUSHALL or DEL removed what it waits for."""
UNDO_SECONDS = 0.25
"""Seconds for undoing after the deadline: a failed wait should leave nothing behind."""
STANDS: Final = (StockError,)
"""Exceptions that are answers, or leave a state that a repeat continues: nothing is undone after them."""

AttemptT = TypeVar("AttemptT")


def wait_for(
    operation: Operation[AttemptT],
    *,
    channel: str,
    timeout: float | None,
    is_busy: Callable[[AttemptT], bool],
    undo: Callable[[], Operation[object]] | None = None,
) -> Plan[tuple[AttemptT | None, float]]:
    """Repeat an idempotent `operation` until its answer is not busy, or `timeout` seconds have passed.

    Returns the last answer (None if the deadline passed before its first turn) and the local time just before it was
    sent, from which a lease may be trusted. If the wait ends by an exception (a cancellation, a signal, a lost
    connection), the operation that `undo` returns is performed first, so that nothing is left behind; except for a
    StockError, which is an answer.

    The plans of an acquire and of a grant are written out like this one, because each plan that hands on to another
    costs time at every effect.
    """
    trying = Try(operation, channel, timeout)
    try:
        tried: tuple[AttemptT, float] | None = yield trying
        if tried is not None and (timeout == 0 or not is_busy(tried[0])):
            return tried[0], trying.asked_at
        return (yield from wait_in_line(trying, is_tried=tried is not None, is_busy=is_busy))
    except BaseException as error:
        yield from undo_after(error, undo, trying)
        raise


def wait_in_line(  # noqa: PLR0913  # each is a way of its own to wait, by name
    trying: Try[AttemptT],
    *,
    is_tried: bool,
    is_busy: Callable[[AttemptT], bool],
    when_behind: Operation[AttemptT] | None = None,
    stands: tuple[type[BaseException], ...] = STANDS,
    offered: Callable[[Operation[AttemptT]], Offer] | None = None,
    look_seconds: float | None = None,
    in_line: Callable[[str], Operation[AttemptT] | None] | None = None,
    out_of_line: Callable[[str], Operation[object]] | None = None,
    has_taken: Callable[[AttemptT], object] | None = None,
) -> Plan[tuple[AttemptT | None, float]]:
    """Wait in this process's queue after the first attempt, or instead of it (not `is_tried`) if others were waiting.

    An answer that took the lock, or found it taken, has `free_in_ms`: when to check again without a message (None:
    unknown). A caller that finds others ahead in the queue performs `when_behind` once, if given, before it waits for
    its turn. `in_line` returns the attempt with a place in the store's line of processes, for the name of this process;
    its answer says how many are `ahead`. If the messages reach this process already, a first attempt from its queue is
    the only one before the first sleep. With `offered`, a caller in this process that frees the lock may make the
    head's attempt for it (`plans.line`); the offer says how to undo that attempt if its waiter is gone. The head checks
    again after `look_seconds` in any case (None: LOOK_SECONDS).

    When the last waiter of a process gives up, is cancelled, fails or is answered without taking anything (`has_taken`;
    without it, every answer that is not busy has taken something), the operation that `out_of_line` returns takes the
    process out of the store's line, so that nothing is left to it; likewise if it took something, but an attempt of
    another waiter may have kept the place. If the store cannot be reached, the process loses its place when its turn
    has passed.

    Returns what `wait_for` does. If it raises, it has left the queue, and the caller must undo (`undo_after`).
    """
    operation, deadline = trying.operation, _deadline_of(trying)
    place = yield from perform(Join(trying.channel))
    try:
        placed = None if in_line is None else in_line(place.line.party)
        place.leaving = None if placed is None or out_of_line is None else out_of_line(place.line.party)
        operation = placed or operation
        first = None if is_tried else when_behind if place.is_behind else operation
        if in_line is not None and first is not None and first is placed and place.is_alone:
            first = in_line(NEWCOMER + place.line.party)
        is_heard = placed is not None and first is not None and place.is_heard
        answer, asked_at, due = yield from _attempts(
            operation,
            first=first,
            may_try=not place.is_behind and not is_heard,
            place=place,
            deadline=deadline,
            is_busy=is_busy,
            offer=None if offered is None else replace(offered(operation), leaving=place.leaving),
            look_seconds=LOOK_SECONDS if look_seconds is None else look_seconds,
        )
    except GeneratorExit:  # the process is ending and cleans nothing up
        raise
    except BaseException as error:
        # Leave the queue first, since a second cancellation must not leave the place behind. Our wake-up may be unused;
        # the undoing wakes another waiter on its own.
        place.line.note_kept()  # by an attempt without an answer
        is_last = yield from perform(Leave(place, AT_ONCE, in_time=isinstance(error, stands)))
        yield from _leave_line(place, if_so=is_last and not isinstance(error, StoreUnavailable))
        raise
    took = answer is not None and (not is_busy(answer) if has_taken is None else has_taken(answer))
    if answer is not None and not took and not is_busy(answer):
        due = AT_ONCE  # a refusal, such as SoldOut: everyone behind can be refused at once
    is_last = yield from perform(Leave(place, due))
    yield from _leave_line(place, if_so=is_last and (not took or place.line.may_be_in_line(place)))
    has_given_up = answer is None or is_busy(answer)
    waited = (trying.timeout or 0.0) if has_given_up else asked_at - trying.asked_at
    _observe_wait(operation, waited, "gave_up" if has_given_up else "acquired" if took else "refused")
    return answer, asked_at


def _observe_wait(operation: Operation[object], waited: float, outcome: str) -> None:
    """Report how long a wait took, in seconds, and how it ended."""
    events.observe("segmented.lock.wait.duration", waited, (operation.lease_kind or "other", outcome))


def _leave_line(place: Place, *, if_so: bool) -> Plan[None]:
    """Take the process out of the store's line, if so; its waiter has nothing more to leave then."""
    if if_so and place.leaving is not None:
        yield from _undone(place.leaving, AT_ONCE)
    place.leaving = None


def leave_for(places: list[Place]) -> Plan[None]:
    """Leave the queues for a plan that was ended by an exception before it could."""
    for place in places:
        is_last = yield from perform(Leave(place, AT_ONCE, in_time=False))
        yield from _leave_line(place, if_so=is_last)


def pause(channel: str, until: float) -> Plan[None]:
    """Sleep until the local time `until`, in a queue that no message reaches: nobody listens to `channel`."""
    place = yield from perform(Join(channel))
    try:
        yield from perform(Park(place, inf, until))
    except GeneratorExit:
        raise
    except BaseException:
        yield from perform(Leave(place, inf))
        raise
    yield from perform(Leave(place, inf))


def _attempts(
    operation: Operation[AttemptT],
    *,
    first: Operation[AttemptT] | None,
    may_try: bool,
    place: Place,
    deadline: float,
    is_busy: Callable[[AttemptT], bool],
    offer: Offer | None,
    look_seconds: float,
) -> Plan[tuple[AttemptT | None, float, float]]:
    answer: AttemptT | None = None
    asked_at, due = 0.0, inf
    if first is not None:
        answer, asked_at, due = yield from _attempt(first, deadline, place, look_seconds)
        if not is_busy(answer):
            return answer, asked_at, due
        place.line.note_kept()
    yield from perform(Listen(place.line.channel, deadline))
    while True:
        if may_try:
            answer, asked_at, due = yield from _attempt(operation, deadline, place, look_seconds)
            if not is_busy(answer):
                return answer, asked_at, due
            place.line.note_kept()
        if not (yield from perform(Park(place, due, deadline, offer))):
            if place.state == "served" and offer is not None and offer.undo_late != offer.undo:
                raise StoreUnavailable(UNANSWERED)  # what was taken stays, for a repeat
            return answer, asked_at, due
        found = place.take_handed()
        if found is not None and not is_busy(found[0]):
            return *found, (yield from _due(found[0], look_seconds))
        may_try = found is None or not _keeps_place(found[0], place)
        if found is not None and not may_try:
            (answer, asked_at), due = found, (yield from _due(found[0], look_seconds))


def _keeps_place(answer: object, place: Place) -> bool:
    """Return whether an attempt that was made for a waiter kept its process's place in the store's line."""
    place.ahead = getattr(answer, "ahead", 0)
    place.line.note_kept()
    place.line.end_row()
    return place.ahead > 0


def _attempt(
    operation: Operation[AttemptT], deadline: float, place: Place, look_seconds: float
) -> Plan[tuple[AttemptT, float, float]]:
    asked_at = yield from perform(Now())
    place.line.begin_attempt(place)
    answer = yield from perform(Within(operation, max(deadline, asked_at + ATTEMPT_SECONDS)))
    place.ahead = getattr(answer, "ahead", 0)
    return answer, asked_at, (yield from _due(answer, look_seconds))


def _due(answer: AttemptT, look_seconds: float) -> Plan[float]:
    """Return the local time of the next check, as far as the answer says."""
    if not hasattr(answer, "free_in_ms") or getattr(answer, "is_in_hand", False):
        return AT_ONCE  # it took nothing, so the next waiter may try at once
    free_in_ms: int | None = answer.free_in_ms
    now = yield from perform(Now())
    if free_in_ms is None:
        return now + look_seconds
    # one millisecond more: the server rounds the remaining time down
    return now + min((free_in_ms + (1 if free_in_ms else 0)) * MILLISECOND, look_seconds)


def undo_after(
    error: BaseException,
    undo: Callable[[], Operation[object]] | None,
    trying: Try[Any],
    stands: tuple[type[BaseException], ...] = STANDS,
) -> Plan[None]:
    """Undo what a wait may have taken that ended by `error`, except one of `stands` or the end of the process."""
    if not isinstance(error, (GeneratorExit, *stands)):
        yield from undone(undo, _deadline_of(trying))


def _deadline_of(trying: Try[Any]) -> float:
    """Return the local time at which the whole wait ends."""
    return inf if trying.timeout is None else trying.asked_at + (trying.timeout or TRY_SECONDS)


def undone(undo: Callable[[], Operation[object]] | None, deadline: float) -> Plan[None]:
    """Perform an undoing, which may take a little longer than the deadline; its failure is not raised."""
    if undo is not None:
        yield from _undone(undo(), deadline)


def _undone(operation: Operation[object], deadline: float) -> Plan[None]:
    soon = (yield from perform(Now())) + UNDO_SECONDS
    with suppress(SegmentedError):  # it took nothing, or the lease expires; the first failure is the one to report
        yield from perform(Within(operation, max(deadline, soon)))

"""Waiting for a lock or a segment, without polling.

Try, subscribe, confirm the subscription, try again, then park until a wake-up, the holder's remaining time to live, or
the deadline, whichever is first. The second try covers a release that came before the subscription; the time to live
covers a holder that died without a release. (Redisson waits in this order.)
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Literal, TypeVar

from segmented.errors import SegmentedError, StockError, StoreUnavailable
from segmented.plans.effects import IsWaitedFor, Join, Leave, Listen, Now, Park, Plan, Within, perform
from segmented.plans.line import Offer

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.plans.line import Place
    from segmented.protocol import Operation

MILLISECOND = 0.001
AT_ONCE = 0.0
ATTEMPT_SECONDS = 0.1
"""Seconds for an attempt that begins just before the deadline; a healthy server answers sooner."""
TRY_SECONDS = 2.0
"""Seconds for the only attempt of a wait of 0, connecting included."""
UNANSWERED = "no answer yet to the attempt that was made when the thing was freed"
LOOK_SECONDS = 12.0
"""Seconds after which the head of a queue checks again in any case: a key may vanish without a message."""
UNDO_SECONDS = 0.25
"""Seconds for undoing after the deadline: a failed wait should leave nothing behind."""


AttemptT = TypeVar("AttemptT")
Handed = Literal["undone late", "kept late"]
"""The treatment of an attempt made for a waiter whose deadline passed before the answer."""


def wait_for(
    operation: Operation[AttemptT],
    *,
    channel: str,
    timeout: float | None,
    is_busy: Callable[[AttemptT], bool],
    when_behind: Operation[AttemptT] | None = None,
    undo: Callable[[], Operation[object]] | None = None,
    stands: tuple[type[BaseException], ...] = (StockError,),
    handed: Handed | None = None,
) -> Plan[tuple[AttemptT | None, float]]:
    """Repeat an idempotent `operation` until its answer is not busy, or `timeout` seconds have passed.

    An answer that took the lock, or found it taken, has `free_in_ms`: when to check again without a message (None:
    unknown). A caller that finds others ahead in the queue performs `when_behind` once, if given, before it waits for
    its turn; a caller that finds the queue empty tries without joining it. With `handed`, a caller in this process that
    frees the lock may make the head's attempt for it (`plans.line`).

    Returns the last answer (None if the deadline passed before its first turn) and the local time just before it was
    sent, from which a lease may be trusted. If the wait ends by an exception (a cancellation, a signal, a lost
    connection), the operation that `undo` returns is performed first, so that nothing is left behind; except for
    exceptions in `stands`, which are answers, or leave a state that a repeat continues.
    """
    asked_at: float = yield Now()
    if timeout == 0:
        return (yield from _once(operation, undo, stands, asked_at, asked_at + TRY_SECONDS)), asked_at
    deadline = inf if timeout is None else asked_at + timeout
    is_waited_for: bool = yield IsWaitedFor(channel)
    if not is_waited_for:  # a try without joining the queue overtakes nobody
        first_answer = yield from _once(operation, undo, stands, asked_at, deadline)
        if not is_busy(first_answer):
            return first_answer, asked_at
    place = yield from perform(Join(channel))
    try:
        first = None if not is_waited_for else when_behind if place.is_behind else operation
        answer, asked_at, due = yield from _attempts(
            operation,
            first=first,
            place=place,
            deadline=deadline,
            is_busy=is_busy,
            offer=None if handed is None else Offer(operation, undo and undo(), handed == "undone late"),
        )
    except GeneratorExit:  # the process is ending and cleans nothing up
        raise
    except BaseException as error:
        # Leave the queue first, since a second cancellation must not leave the place behind. Our wake-up may be unused;
        # the undoing wakes another waiter on its own.
        it_stands = isinstance(error, stands)
        yield from perform(Leave(place, AT_ONCE, in_time=it_stands))
        yield from undone(None if it_stands else undo, deadline)
        raise
    yield from perform(Leave(place, due))
    return answer, asked_at


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


def _once(
    operation: Operation[AttemptT],
    undo: Callable[[], Operation[object]] | None,
    stands: tuple[type[BaseException], ...],
    asked_at: float,
    deadline: float,
) -> Plan[AttemptT]:
    attempt = operation if deadline == inf else Within(operation, max(deadline, asked_at + ATTEMPT_SECONDS))
    answer: AttemptT
    try:
        answer = yield attempt
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from undone(None if isinstance(error, stands) else undo, deadline)
        raise
    return answer


def _attempts(
    operation: Operation[AttemptT],
    *,
    first: Operation[AttemptT] | None,
    place: Place,
    deadline: float,
    is_busy: Callable[[AttemptT], bool],
    offer: Offer | None,
) -> Plan[tuple[AttemptT | None, float, float]]:
    answer: AttemptT | None = None
    asked_at, due = 0.0, inf
    if first is not None:
        answer, asked_at, due = yield from _attempt(first, deadline)
        if not is_busy(answer):
            return answer, asked_at, due
    yield from perform(Listen(place.line.channel, deadline))
    may_try = not place.is_behind
    while True:
        if may_try:
            answer, asked_at, due = yield from _attempt(operation, deadline)
            if not is_busy(answer):
                return answer, asked_at, due
        if not (yield from perform(Park(place, due, deadline, offer))):
            if place.is_under_way and offer is not None and not offer.is_undone_late:
                raise StoreUnavailable(UNANSWERED)  # a lease that was taken stays, for a repeat
            return answer, asked_at, due
        found = place.take_handed()
        if found is not None and not is_busy(found[0]):
            return *found, (yield from _due(found[0]))
        may_try = True


def _attempt(operation: Operation[AttemptT], deadline: float) -> Plan[tuple[AttemptT, float, float]]:
    asked_at = yield from perform(Now())
    answer = yield from perform(Within(operation, max(deadline, asked_at + ATTEMPT_SECONDS)))
    return answer, asked_at, (yield from _due(answer))


def _due(answer: AttemptT) -> Plan[float]:
    """Return the local time of the next check, as far as the answer says."""
    if not hasattr(answer, "free_in_ms") or getattr(answer, "is_in_hand", False):
        return AT_ONCE  # it took nothing, so the next waiter may try at once
    free_in_ms: int | None = answer.free_in_ms
    now = yield from perform(Now())
    if free_in_ms is None:
        return now + LOOK_SECONDS
    # one millisecond more: the server rounds the remaining time down
    return now + min((free_in_ms + (1 if free_in_ms else 0)) * MILLISECOND, LOOK_SECONDS)


def undone(undo: Callable[[], Operation[object]] | None, deadline: float) -> Plan[None]:
    """Perform an undoing, which may take a little longer than the deadline; its failure is not raised."""
    if undo is None:
        return
    soon = (yield from perform(Now())) + UNDO_SECONDS
    with suppress(SegmentedError):  # it took nothing, or the lease expires; the first failure is the one to report
        yield from perform(Within(undo(), max(deadline, soon)))

"""The one way to wait for a lock or a segment: never a blind poll.

Try, subscribe, confirm the subscription, try again, then park until a wake-up, the holder's remaining time to live, or
the deadline, whichever is first. The second try closes the gap in which a release goes unheard (a waiter that
subscribes too late); the time to live covers a holder that died without a word. (Redisson waits in this order.)
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
"""How long an attempt may take that begins just before the deadline; a server in good order answers sooner."""
TRY_SECONDS = 2.0
"""How long the one attempt of a wait of 0 may take, connecting included."""
UNANSWERED = "no answer yet to the attempt that was made when the thing was freed"
LOOK_SECONDS = 12.0
"""After so long the head of a line looks again whatever was said: a key may be gone without a word."""
UNDO_SECONDS = 0.25
"""How long beyond the deadline an undoing may take: a wait that failed should still leave nothing behind."""


AttemptT = TypeVar("AttemptT")
Handed = Literal["undone late", "kept late"]
"""What becomes of an attempt that was made for a waiter whose deadline came before its answer."""


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

    An answer that took something, or found it taken, carries `free_in_ms`: when it is worth looking again without a
    message (None: unknown). Whoever finds others ahead in the line performs `when_behind` once, if it is given, before
    it waits for its turn; whoever finds nobody tries without joining it.
    With `handed`, whoever of this process frees the thing may make the head's attempt for it (`plans.line`).
    Returns the last answer (None when the deadline came before a first turn in the line) and the local time just before
    it was asked for, from which a lease may be trusted. If the wait ends by an exception (a cancellation, a signal, a
    lost connection), the operation that `undo` returns is performed first, so that nothing is left behind; except after
    those that `stands` names, which are answers, or leave a state that a repeat continues.
    """
    asked_at: float = yield Now()
    if timeout == 0:
        return (yield from _once(operation, undo, stands, asked_at, asked_at + TRY_SECONDS)), asked_at
    deadline = inf if timeout is None else asked_at + timeout
    is_waited_for: bool = yield IsWaitedFor(channel)
    if not is_waited_for:  # a try without joining the line passes nobody over
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
    except GeneratorExit:  # the process is gone: a dead one cleans nothing up
        raise
    except BaseException as error:
        # First the place, which a second cancellation must not leave behind. The wake-up that brought us here was
        # perhaps not used; what the undoing frees wakes somebody by itself.
        it_stands = isinstance(error, stands)
        yield from perform(Leave(place, AT_ONCE, in_time=it_stands))
        yield from undone(None if it_stands else undo, deadline)
        raise
    yield from perform(Leave(place, due))
    return answer, asked_at


def pause(channel: str, until: float) -> Plan[None]:
    """Sleep until the local time `until`, in a line that no message reaches: nobody listens to `channel`."""
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
                raise StoreUnavailable(UNANSWERED)  # what was taken stays, for a repeat
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
    """Return the local time at which it is worth looking again, as far as an answer knows."""
    if not hasattr(answer, "free_in_ms") or getattr(answer, "is_in_hand", False):
        return AT_ONCE  # it took nothing: what was free still is, so the next may try at once
    free_in_ms: int | None = answer.free_in_ms
    now = yield from perform(Now())
    if free_in_ms is None:
        return now + LOOK_SECONDS
    # one millisecond more: the server rounds a remaining life down
    return now + min((free_in_ms + (1 if free_in_ms else 0)) * MILLISECOND, LOOK_SECONDS)


def undone(undo: Callable[[], Operation[object]] | None, deadline: float) -> Plan[None]:
    """Perform an undoing, which may take a little longer than the deadline; its failure is not raised."""
    if undo is None:
        return
    soon = (yield from perform(Now())) + UNDO_SECONDS
    with suppress(SegmentedError):  # it had taken nothing, or what it took lapses; the first failure is the one to tell
        yield from perform(Within(undo(), max(deadline, soon)))

"""The one way to wait for a lock or a segment: never a blind poll.

Try, subscribe, confirm the subscription, try again, then park until a wake-up, the holder's remaining time to live, or
the deadline, whichever is first. The second try closes the gap in which a release goes unheard (a waiter that
subscribes too late); the time to live covers a holder that died without a word. (Redisson waits in this order.)
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, TypeVar

from segmented.errors import SegmentedError, StockError
from segmented.plans.effects import Join, Leave, Listen, Now, Park, Plan, perform

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.operations import Operation
    from segmented.plans.line import Place

MILLISECOND = 0.001
AT_ONCE = 0.0


AttemptT = TypeVar("AttemptT")


def wait_for(
    operation: Operation[AttemptT],
    *,
    channel: str,
    timeout: float | None,
    is_busy: Callable[[AttemptT], bool],
    undo: Operation[object] | None = None,
    stands: tuple[type[BaseException], ...] = (StockError,),
) -> Plan[tuple[AttemptT | None, float]]:
    """Repeat an idempotent `operation` until its answer is not busy, or `timeout` seconds have passed.

    An answer that took something, or found it taken, carries `free_in_ms`: when it is worth looking again without a
    message (None: unknown).
    Returns the last answer (None when the deadline came before a first turn in the line) and the local time just before
    it was asked for, from which a lease may be trusted. If the wait ends by an exception
    (a cancellation, a signal, a lost connection), `undo` is performed before it goes on, so that nothing is left
    behind; except after those that `stands` names, which are answers, or leave a state that a repeat continues.
    """
    if timeout == 0:
        return (yield from _once(operation, undo, stands))
    deadline = inf if timeout is None else (yield from perform(Now())) + timeout
    place = yield from perform(Join(channel))
    try:
        answer, asked_at, due = yield from _attempts(operation, place=place, deadline=deadline, is_busy=is_busy)
    except GeneratorExit:  # the process is gone: a dead one cleans nothing up
        raise
    except BaseException as error:
        # First the place, which a second cancellation must not leave behind. The wake-up that brought us here was
        # perhaps not used; what the undoing frees wakes somebody by itself.
        yield from perform(Leave(place, AT_ONCE))
        yield from _undone(None if isinstance(error, stands) else undo)
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
    operation: Operation[AttemptT], undo: Operation[object] | None, stands: tuple[type[BaseException], ...]
) -> Plan[tuple[AttemptT, float]]:
    asked_at = yield from perform(Now())
    try:
        return (yield from perform(operation)), asked_at
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from _undone(None if isinstance(error, stands) else undo)
        raise


def _attempts(
    operation: Operation[AttemptT], *, place: Place, deadline: float, is_busy: Callable[[AttemptT], bool]
) -> Plan[tuple[AttemptT | None, float, float]]:
    answer: AttemptT | None = None
    asked_at, due = 0.0, inf
    if not place.is_behind:
        answer, asked_at, due = yield from _attempt(operation)
        if not is_busy(answer):
            return answer, asked_at, due
    yield from perform(Listen(place.line.channel, deadline))
    may_try = not place.is_behind
    while True:
        if may_try:
            answer, asked_at, due = yield from _attempt(operation)
            if not is_busy(answer):
                return answer, asked_at, due
        if not (yield from perform(Park(place, due, deadline))):
            return answer, asked_at, due
        may_try = True


def _attempt(operation: Operation[AttemptT]) -> Plan[tuple[AttemptT, float, float]]:
    asked_at = yield from perform(Now())
    answer = yield from perform(operation)
    if not hasattr(answer, "free_in_ms") or getattr(answer, "is_in_hand", False):
        return answer, asked_at, AT_ONCE  # it took nothing: what was free still is, so the next may try at once
    free_in_ms: int | None = answer.free_in_ms
    if free_in_ms is None:
        return answer, asked_at, inf
    now = yield from perform(Now())
    # one millisecond more: the server rounds a remaining life down
    return answer, asked_at, now + (free_in_ms + (1 if free_in_ms else 0)) * MILLISECOND


def _undone(undo: Operation[object] | None) -> Plan[None]:
    if undo is None:
        return
    with suppress(SegmentedError):  # it had taken nothing, or what it took lapses; the first failure is the one to tell
        yield from perform(undo)

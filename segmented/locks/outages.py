"""Waiting out an outage: an acquire whose store cannot be reached tries again until its own deadline.

A policy (`UnreachablePolicy`) is the caller's other choice: an acquire inside its block fails at once, so that the
policy can act. The block notes the lock's name in a context variable, which reaches all acquires of its thread or task,
and those of tasks that the body starts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from typing import Final, TypeVar

from segmented.errors import LockUnreachable
from segmented.plans import Now, Plan, pause, perform

OutcomeT = TypeVar("OutcomeT")

PAUSE_MIN: Final = 0.05
PAUSE_MAX: Final = 0.5
"""Seconds between two tries; each pause is twice as long as the one before, up to the maximum."""
AWAY_SECONDS: Final = 60.0
"""Seconds after which an acquire with `timeout=None` gives up: it waits forever for the lock, not for the server."""
CONTACT_SECONDS: Final = 20.0
"""A try that took longer reached the server before it failed, because the store's own attempts end sooner."""

_told_at_once: ContextVar[tuple[str | None, ...]] = ContextVar("told_at_once", default=())


def tell_at_once(lock_name: str | None) -> None:
    """Let acquires of this lock (None: any) in this thread or task fail at once."""
    _told_at_once.set((*_told_at_once.get(), lock_name))


def tell_late(lock_name: str | None) -> None:
    """Undo one `tell_at_once`."""
    names = list(_told_at_once.get())
    if lock_name in names:  # not in a context that another task has copied before
        names.remove(lock_name)
        _told_at_once.set(tuple(names))


def waits_out(lock_name: str, timeout: float | None) -> bool:
    """Return whether an acquire with this timeout tries again; not one of a single try or inside a policy's block."""
    names = _told_at_once.get()
    return timeout != 0 and None not in names and lock_name not in names


def waited_out(
    again: Callable[[float | None], Plan[OutcomeT]],
    failed: LockUnreachable,
    *,
    channel: str,
    began_at: float,
    timeout: float | None,
) -> Plan[OutcomeT]:
    """Call `again` with the seconds that are left, until it does not raise LockUnreachable or no time is left.

    `began_at` is when the whole wait began, in local time. With a timeout of None, the last error is raised once the
    store has been away for AWAY_SECONDS.
    """
    now = yield from perform(Now())
    end = inf if timeout is None else began_at + timeout
    gives_up_at, seconds = now + AWAY_SECONDS if timeout is None else end, PAUSE_MIN
    while now < gives_up_at:
        yield from pause(f"{channel}:away", min(now + seconds, gives_up_at))
        asked_at = yield from perform(Now())
        if asked_at >= gives_up_at:
            break
        try:
            return (yield from again(None if timeout is None else end - asked_at))
        except LockUnreachable as error:
            failed = error
        now, seconds = (yield from perform(Now())), min(2 * seconds, PAUSE_MAX)
        if timeout is None and now > asked_at + CONTACT_SECONDS:
            gives_up_at, seconds = now + AWAY_SECONDS, PAUSE_MIN
    raise failed

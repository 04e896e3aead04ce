"""The policy for an unreachable Redis: wait until it is back, raise at once, or keep the work for later.

By default, an acquire whose store cannot be reached tries again until its own deadline.

A policy surrounds the statement that acquires, either `with lock.acquire()` or the call of a `locked` function. An
acquire in the block fails at once instead of waiting for the server, so that the policy can act: the block notes the
lock's name in a context variable, which reaches all acquires of its thread or task, and those of tasks that the body
starts.

Guarantees: work is recorded only if its lock could not be acquired (LockUnreachable); its body has not begun then. If
the store fails later, so that a release or a renewal fails, the error is raised unchanged: the body, or part of it, ran
and must not be repeated from a letter.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Self, TypeGuard, TypeVar

from segmented.errors import InvalidInput, LockUnreachable
from segmented.plans import Now, Plan, pause, perform

if TYPE_CHECKING:
    from types import TracebackType

    from segmented.locks.dead_letters import DeadLetters, Work


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


Alarm = Callable[[LockUnreachable, str], object]
"""A function called with the error and the lock's name; for `async with` it may be a coroutine function."""

_log = logging.getLogger("segmented.locks")


@dataclass(frozen=True, slots=True)
class UnreachablePolicy:
    """The action to take when a lock's store cannot be reached. Without `record_to` the error is raised at once."""

    record_to: DeadLetters | None = None
    """Where to keep the work instead: anywhere but on the unreachable Redis."""
    alarm: Alarm | None = None
    """Called each time, whether the work was kept or not. Its own errors are logged and hide nothing."""

    def around(self, work: Work, *, lock_name: str | None = None) -> Around:
        """Return a context manager for an acquire and its body, for `with` or `async with`.

        With `record_to`, the block ends without an error if the lock is unreachable, and `is_recorded` is True. If the
        work could not be kept either, the error is raised with a note that says so.

        A body that acquires another lock may fail there, after it has begun: pass the block's own `lock_name`, so that
        the failures of other locks are raised.
        """
        return Around(self, work, lock_name)


class Around:
    """One use of a policy, returned by `UnreachablePolicy.around`."""

    def __init__(self, policy: UnreachablePolicy, work: Work, lock_name: str | None) -> None:
        """Create a block that applies `policy` to `work` and the lock `lock_name` (None: any lock)."""
        self._policy = policy
        self._work = work
        self._lock_name = lock_name
        self.is_recorded = False
        """Whether the work was kept for later; if so, its body has not run."""

    def __enter__(self) -> Self:
        if inspect.iscoroutinefunction(self._policy.alarm):
            raise InvalidInput("the policy's alarm is a coroutine function, which only `async with` can await")
        tell_at_once(self._lock_name)
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        """Record the work, or let the error propagate."""
        tell_late(self._lock_name)
        if not self._concerns(error):
            return False
        self._record(error)
        try:
            self._ring(error)
        except Exception:  # noqa: BLE001  # an error of the caller's alarm must not hide the first one
            _log.exception("lock.alarm_failed", extra={"lock": error.name})
        return self.is_recorded

    async def __aenter__(self) -> Self:
        tell_at_once(self._lock_name)
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> bool:
        """Record the work in a thread, or let the error propagate."""
        tell_late(self._lock_name)
        if not self._concerns(error):
            return False
        await asyncio.to_thread(self._record, error)
        try:
            rung = self._ring(error)
            if inspect.isawaitable(rung):
                await rung
        except Exception:  # noqa: BLE001  # an error of the caller's alarm must not hide the first one
            _log.exception("lock.alarm_failed", extra={"lock": error.name})
        return self.is_recorded

    def _concerns(self, error: BaseException | None) -> TypeGuard[LockUnreachable]:
        return isinstance(error, LockUnreachable) and self._lock_name in {None, error.name}

    def _record(self, error: LockUnreachable) -> None:
        if self._policy.record_to is None:
            return
        try:
            self._policy.record_to.record(self._work)
        except Exception as failure:  # noqa: BLE001  # an error of any store: the caller must see both
            error.add_note(f"and {self._work.name!r} could not be recorded for later: {failure}")
        else:
            self.is_recorded = True

    def _ring(self, error: LockUnreachable) -> object:
        return None if self._policy.alarm is None else self._policy.alarm(error, error.name)

"""What to do when Redis cannot be reached: raise at once, or keep the work for later; an alarm either way.

A policy is put around the statement that acquires, be it `with lock.acquire()` or the call of a `lockable` function.
Guarantees: only a lock that could not be acquired has its work recorded (LockUnreachable); the body has not begun then.
A store that goes away in the middle, so that a release or a renewal fails, is raised as it is: the body ran, or part of
it, and is not to be done again from a letter.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeGuard

from segmented.errors import InvalidInput, LockUnreachable

if TYPE_CHECKING:
    from types import TracebackType

    from segmented.locks.dead_letters import DeadLetters, Work

Alarm = Callable[[LockUnreachable, str], object]
"""Called with the error and the name of the lock. May be a coroutine function for `async with`."""

_log = logging.getLogger("segmented.locks")


@dataclass(frozen=True, slots=True)
class UnreachablePolicy:
    """What happens when a lock's store cannot be reached. Without `record_to` the error is raised at once."""

    record_to: DeadLetters | None = None
    """Where the work is kept instead: anywhere but on the Redis that is away."""
    alarm: Alarm | None = None
    """Called each time, whether the work was kept or not. What it raises is logged and hides nothing."""

    def around(self, work: Work, *, lock_name: str | None = None) -> Around:
        """Return what to put around an acquire and its body, as `with` or `async with`.

        With `record_to` the block ends without an error where the lock could not be reached, and `is_recorded` says so.
        If the work could not be kept either, the error is raised with a note of that.

        A body that acquires another lock of its own may fail there, after it has begun: give the `lock_name` that the
        block is about, and the failures of other locks are raised.
        """
        return Around(self, work, lock_name)


class Around:
    """One use of a policy; made by `UnreachablePolicy.around`."""

    def __init__(self, policy: UnreachablePolicy, work: Work, lock_name: str | None) -> None:
        """Wait for what happens."""
        self._policy = policy
        self._work = work
        self._lock_name = lock_name
        self.is_recorded = False
        """True once the work was kept for later; its body has not run."""

    def __enter__(self) -> Self:
        """Begin."""
        if inspect.iscoroutinefunction(self._policy.alarm):
            message = "the policy's alarm is a coroutine function, which only `async with` can await"
            raise InvalidInput(message)
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        """Record the work, or let the error go on."""
        if not self._concerns(error):
            return False
        self._record(error)
        try:
            self._ring(error)
        except Exception:  # noqa: BLE001  # the caller's own, and it must not hide what happened
            _log.exception("lock.alarm_failed", extra={"lock": error.name})
        return self.is_recorded

    async def __aenter__(self) -> Self:
        """Begin."""
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> bool:
        """Record the work in a thread, or let the error go on."""
        if not self._concerns(error):
            return False
        await asyncio.to_thread(self._record, error)
        try:
            rung = self._ring(error)
            if inspect.isawaitable(rung):
                await rung
        except Exception:  # noqa: BLE001  # as above
            _log.exception("lock.alarm_failed", extra={"lock": error.name})
        return self.is_recorded

    def _concerns(self, error: BaseException | None) -> TypeGuard[LockUnreachable]:
        return isinstance(error, LockUnreachable) and self._lock_name in {None, error.name}

    def _record(self, error: LockUnreachable) -> None:
        if self._policy.record_to is None:
            return
        try:
            self._policy.record_to.record(self._work)
        except Exception as failure:  # noqa: BLE001  # of any store, the caller's own too: the caller must learn of both
            error.add_note(f"and {self._work.name!r} could not be recorded for later: {failure}")
        else:
            self.is_recorded = True

    def _ring(self, error: LockUnreachable) -> object:
        return None if self._policy.alarm is None else self._policy.alarm(error, error.name)

"""A lease around one call of a decorated function: it ends with the body or with the transaction, whichever is later.

The two classes are twins, since one awaits; what they decide is in `_Ends`. A lock outlives a `Transaction`: a follower
is called before its commit and after its end.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from segmented.errors import SegmentedError
from segmented.locks.lease import AsyncLease, Lease
from segmented.plans.tasks import begun

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

LeaseT = TypeVar("LeaseT", Lease, AsyncLease)
_log = logging.getLogger("segmented.locks")
_releasing: set[asyncio.Task[None]] = set()
"""Releases under way, which nobody else keeps from being collected."""


class _Ends(Generic[LeaseT]):
    """Knows which of the two ends have come. Without a transaction there is only the body's."""

    def __init__(self, lease: LeaseT, transaction: Transaction | None) -> None:
        """Follow nothing yet."""
        self._lease: LeaseT = lease
        self._transaction = transaction
        self._guard = threading.Lock()
        self._is_body_over = False
        self._has_ended = False

    def _follow(self) -> None:
        """Follow the transaction from before the body's first step."""
        if self._transaction is not None:
            self._transaction.follow(self)

    def before_commit(self) -> None:
        """Refuse a commit that the lease does not cover any more, with LeaseLost."""
        if not self._has_ended:
            self._lease.require()

    def after_end(self) -> None:
        """Hear that the transaction has ended; if the body has too, so does the lease."""
        if self._is_body_over and self._is_last():
            self._release_late()

    def _release_late(self) -> None:
        raise NotImplementedError

    def _is_body_last(self) -> bool:
        """Note the end of the body. Is it for the body to release?"""
        self._is_body_over = True
        if self._transaction is not None and self._transaction.is_open():
            return False
        return self._is_last()

    def _is_last(self) -> bool:
        """Of two ends in two threads at once, only one releases."""
        with self._guard:
            if self._has_ended:
                return False
            self._has_ended = True
        if self._transaction is not None:
            self._transaction.leave(self)
        return True

    def _note_failure(self, failure: SegmentedError) -> None:
        """Log it: the transaction is decided, so nothing may be raised into whoever committed it."""
        _log.warning("lease.release_failed", extra={"lock": self._lease.name, "reason": str(failure)})


class Holding(_Ends[Lease]):
    """A lease around a body, for threads."""

    def __enter__(self) -> None:
        """Follow the transaction; if that fails, the lease ends here."""
        try:
            self._follow()
        except BaseException as error:
            self._lease.__exit__(type(error), error, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release, unless a transaction is open; the body's own error is never hidden."""
        if self._is_body_last():
            self._lease.__exit__(kind, error, trace)

    def _release_late(self) -> None:
        try:
            self._lease.release()
        except SegmentedError as failure:
            self._note_failure(failure)


class AsyncHolding(_Ends[AsyncLease]):
    """A lease around a body, for asyncio."""

    def __init__(self, lease: AsyncLease, transaction: Transaction | None) -> None:
        """Belong to the running loop."""
        self._loop = asyncio.get_running_loop()
        super().__init__(lease, transaction)

    async def __aenter__(self) -> None:
        """Follow the transaction; if that fails, the lease ends here."""
        try:
            self._follow()
        except BaseException as error:
            await self._lease.__aexit__(type(error), error, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release, unless a transaction is open; the body's own error is never hidden."""
        if self._is_body_last():
            await self._lease.__aexit__(kind, error, trace)

    def _release_late(self) -> None:
        """Release before the commit returns, under SQLAlchemy's asyncio; else in a task of its own, soon after."""
        if self._transaction is not None and self._transaction.has_run(self._released):
            return
        try:
            self._loop.call_soon_threadsafe(self._start_release)
        except RuntimeError:  # the loop is closed, and the lease lapses
            _log.warning("lease.release_failed", extra={"lock": self._lease.name, "reason": "the event loop is closed"})

    def _start_release(self) -> None:
        task = self._loop.create_task(begun(self._released), name="segmented-release")
        _releasing.add(task)
        task.add_done_callback(_releasing.discard)

    async def _released(self) -> None:
        try:
            await self._lease.release()
        except SegmentedError as failure:
            self._note_failure(failure)


class Follower(Protocol):
    """Whoever wants to know how a transaction goes on."""

    def before_commit(self) -> None:
        """Hear that a commit is about to be sent; raising refuses it."""

    def after_end(self) -> None:
        """Hear that a transaction has ended, by a commit, a rollback or a close."""


class Transaction(Protocol):
    """What is followed."""

    def is_open(self) -> bool:
        """Has a transaction begun and not ended?"""

    def follow(self, follower: Follower) -> None:
        """Tell `follower` from now on."""

    def leave(self, follower: Follower) -> None:
        """Tell it no more."""

    def has_run(self, start: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run a coroutine to its end, if the end of the transaction is being told where that can be done."""


class HookWatch:
    """Follows a transaction of any other kind, through a hook that is given a function to call at its end."""

    def __init__(self, register: Callable[[Callable[[], None]], object]) -> None:
        """Hand our function to `register` when somebody follows."""
        self._register = register
        self._follower: Follower | None = None
        self._is_over = False

    def is_open(self) -> bool:
        """Has the hook not told the end yet?"""
        return not self._is_over

    def follow(self, follower: Follower) -> None:
        """Register: there is one follower a hook."""
        self._follower = follower
        self._register(self._end)

    def leave(self, _: Follower) -> None:
        """Tell it no more."""
        self._follower = None

    def has_run(self, _: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """No: a hook is called anywhere."""
        return False

    def _end(self) -> None:
        self._is_over = True
        if self._follower is not None:
            self._follower.after_end()

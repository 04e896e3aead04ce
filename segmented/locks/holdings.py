"""A lease around one call of a decorated function: it ends with the body or with the transaction, whichever is later.

The sync and async classes share their decisions in `_Ends`. A lock outlives a `Transaction`: a follower is called
before its commit and after its end.
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
"""Keeps the tasks of releases in progress from being garbage-collected."""


class _Ends(Generic[LeaseT]):
    """Tracks the ends of the body and of the transaction, if there is one."""

    def __init__(self, lease: LeaseT, transaction: Transaction | None) -> None:
        """Create an object that releases `lease` once the body and `transaction`, if there is one, have ended."""
        self._lease: LeaseT = lease
        self._transaction = transaction
        self._guard = threading.RLock()
        self._is_body_over = False
        self._has_ended = False

    def _follow(self) -> None:
        """Follow the transaction from before the body's first step."""
        if self._transaction is not None:
            self._transaction.follow(self)

    def before_commit(self) -> None:
        """Raise LeaseLost if the lease no longer covers the commit."""
        if not self._has_ended:
            self._lease.require()

    def after_end(self) -> None:
        """Note that the transaction has ended; release the lease if the body has ended too."""
        if self._is_body_over and self._is_last():
            self._release_late()

    def _release_late(self) -> None:
        raise NotImplementedError

    def _is_body_last(self) -> bool:
        """Note the end of the body and return whether the body must release."""
        self._is_body_over = True
        if self._transaction is not None and self._transaction.is_open():
            return False
        return self._is_last()

    def _is_last(self) -> bool:
        """Return whether this end must release: if both ends come at once in two threads, only one does."""
        with self._guard:
            if self._has_ended:
                return False
            self._has_ended = True
        if self._transaction is not None:
            self._transaction.leave(self)
        return True

    def _note_failure(self, failure: SegmentedError) -> None:
        """Log the failure: the transaction is decided, so nothing may be raised into its commit."""
        _log.warning("lease.release_failed", extra={"lock": self._lease.name, "reason": str(failure)})


class Follower(Protocol):
    """An object that is notified of a transaction's progress."""

    def before_commit(self) -> None:
        """Note that a commit is about to be sent; raise to refuse it."""

    def after_end(self) -> None:
        """Note that a transaction has ended, by a commit, a rollback or a close."""


class Transaction(Protocol):
    """A transaction that can be followed."""

    def is_open(self) -> bool:
        """Return whether a transaction has begun and not ended."""

    def follow(self, follower: Follower) -> None:
        """Notify `follower` from now on."""

    def leave(self, follower: Follower) -> None:
        """Stop notifying `follower`."""

    def has_run(self, start: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run a coroutine to its end if the current notification of the end allows it; return whether it did."""


class HookWatch:
    """Follows a transaction of any other kind, through a hook that gets a function to call at the end."""

    def __init__(self, register: Callable[[Callable[[], None]], object]) -> None:
        """Create a watch that passes its function to `register` once there is a follower."""
        self._register = register
        self._follower: Follower | None = None
        self._is_over = False

    def is_open(self) -> bool:
        """Return whether the hook has not yet reported the end."""
        return not self._is_over

    def follow(self, follower: Follower) -> None:
        """Register the only follower of this hook."""
        self._follower = follower
        self._register(self._end)

    def leave(self, _: Follower) -> None:
        """Stop notifying the follower."""
        self._follower = None

    def has_run(self, _: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Return False: a hook may be called anywhere, where a coroutine cannot run."""
        return False

    def _end(self) -> None:
        self._is_over = True
        if self._follower is not None:
            self._follower.after_end()


class AsyncHolding(_Ends[AsyncLease]):
    """A lease around a body, for asyncio."""

    def __init__(self, lease: AsyncLease, transaction: Transaction | None) -> None:  # asyncio only
        """Create an object that releases `lease` once the body and `transaction`, if there is one, have ended.

        It belongs to the running event loop.
        """
        self._loop = asyncio.get_running_loop()
        super().__init__(lease, transaction)

    async def __aenter__(self) -> None:
        """Follow the transaction; if that fails, release the lease."""
        try:
            self._follow()
        except BaseException as error:
            await self._lease.__aexit__(type(error), error, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release, unless a transaction is open; a failure never hides the body's own error."""
        if self._is_body_last():
            await self._lease.__aexit__(kind, error, trace)

    def _release_late(self) -> None:  # asyncio only
        """Release before the commit returns, under SQLAlchemy's asyncio; otherwise in its own task, soon after."""
        if self._transaction is not None and self._transaction.has_run(self._released):
            return
        try:
            self._loop.call_soon_threadsafe(self._start_release)
        except RuntimeError:  # the loop is closed, and the lease expires
            _log.warning("lease.release_failed", extra={"lock": self._lease.name, "reason": "the event loop is closed"})

    def _start_release(self) -> None:  # asyncio only
        task = self._loop.create_task(begun(self._released), name="segmented-release")
        _releasing.add(task)
        task.add_done_callback(_releasing.discard)

    # threads: def _release_late(self) -> None:
    # threads:     self._released()

    async def _released(self) -> None:
        try:
            await self._lease.release()
        except SegmentedError as failure:
            self._note_failure(failure)


# --- For threads: written by `make sync` from the classes above. ---


class Holding(_Ends[Lease]):
    """A lease around a body, for threads."""

    def __enter__(self) -> None:
        """Follow the transaction; if that fails, release the lease."""
        try:
            self._follow()
        except BaseException as error:
            self._lease.__exit__(type(error), error, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release, unless a transaction is open; a failure never hides the body's own error."""
        if self._is_body_last():
            self._lease.__exit__(kind, error, trace)

    def _release_late(self) -> None:
        self._released()

    def _released(self) -> None:
        try:
            self._lease.release()
        except SegmentedError as failure:
            self._note_failure(failure)

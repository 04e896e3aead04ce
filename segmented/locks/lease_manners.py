"""What every lease does alike: it ends with its `with` statement, stays in its process, and cancels work when lost.

The cancel scope follows the pattern of `asyncio.timeout`: our own cancellation is taken back with `Task.uncancel`, and
any other one, from outside, goes through untouched.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NoReturn, Protocol, Self

from segmented.errors import InvalidInput, LeaseLost, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class StaysInItsProcess:
    """Of use in the process that acquired it: two processes would otherwise both believe that they hold it."""

    name: str

    def __init__(self) -> None:
        """Belong to this process."""
        self._process_id = os.getpid()

    def _require_own_process(self) -> None:
        if os.getpid() != self._process_id:
            message = f"the lease on {self.name!r} belongs to process {self._process_id}; acquire in this one"
            raise InvalidInput(message)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        message = f"the lease on {self.name!r} cannot be pickled: acquire in the process that needs it"
        raise InvalidInput(message)


class EndsWithItsBlock:
    """Released at the end of a `with` statement."""

    def release(self) -> None:
        """End the lease."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Return the lease."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release; the body's own error is never hidden by a failed release."""
        try:
            self.release()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")


class EndsWithItsAsyncBlock:
    """Released at the end of an `async with` statement."""

    async def release(self) -> None:
        """End the lease."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Return the lease."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release; the body's own error is never hidden by a failed release."""
        try:
            await self.release()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")


class Losable(Protocol):
    """A lease, of one name or of several, that tells of its loss."""

    @property
    def name(self) -> str:
        """What it is on."""

    @property
    def holder_id(self) -> str:
        """Whose it is."""

    def require(self) -> None:
        """Raise LeaseLost unless it may be trusted."""

    def on_lost(self, callback: Callable[[], None]) -> object:
        """Have this called once it is lost."""


class CancelScope:
    """Made by `AsyncLease.cancel_scope()`. To be entered once."""

    def __init__(self, lease: Losable) -> None:
        """Watch `lease`."""
        self._lease = lease
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._has_cancelled = False

    async def __aenter__(self) -> Self:
        """Begin; raises LeaseLost when the lease is lost already."""
        task = asyncio.current_task()
        if task is None or self._task is not None:
            message = f"a cancel scope of the lease on {self._lease.name!r} is entered once, in a task"
            raise InvalidInput(message)
        self._lease.require()
        self._task, self._cancelling = task, task.cancelling()
        self._lease.on_lost(self._cancel)
        return self

    def _cancel(self) -> None:
        task = self._task
        if task is None or self._has_cancelled:
            return
        if asyncio.current_task() is task:  # the body runs and has just been told; cancel it as it next waits
            asyncio.get_running_loop().call_soon(self._cancel)
            return
        self._has_cancelled = True
        task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Turn our own cancellation into LeaseLost; whoever left the scope is not cancelled any more."""
        task, self._task = self._task, None
        if task is None or not self._has_cancelled:
            return
        is_ours_alone = task.uncancel() <= self._cancelling
        if is_ours_alone and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise LeaseLost(self._lease.name, self._lease.holder_id) from error
        if is_ours_alone and kind is None:  # it swallowed the cancellation
            raise LeaseLost(self._lease.name, self._lease.holder_id)

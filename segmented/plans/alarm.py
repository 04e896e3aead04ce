"""Deadlines of tasks: an alarm that cancels the task, and takes its cancellation back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Alarm:
    """Cancels the task that made it after some seconds; as a `with` statement, it raises TimeoutError then.

    `asyncio.timeout` at half the cost, paid by each exchange. Before Python 3.11.3, and Debian 12 has 3.11.2, that one
    raises CancelledError in the clean-up of a task that was cancelled: the same is done here as it does since.
    """

    __slots__ = ("_cancellations", "_handle", "_task", "has_rung")

    def __init__(self, seconds: float) -> None:
        """Begin to count."""
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        self._cancellations = self._task.cancelling() if self._task is not None else 0
        self._handle = loop.call_later(seconds, self._ring)
        self.has_rung = False

    def _ring(self) -> None:
        self.has_rung = True
        if self._task is not None:
            self._task.cancel()

    def is_silenced(self) -> bool:
        """Take its own cancellation back, if it rang; return whether it rang and nobody else cancelled the task."""
        return self.has_rung and self._task is not None and self._task.uncancel() <= self._cancellations

    def stop(self) -> None:
        """Count no more."""
        self._handle.cancel()

    def __enter__(self) -> None:
        """Count since it was made."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Raise TimeoutError where it rang, and nobody else cancelled the task."""
        self.stop()
        if self.is_silenced() and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

"""Tasks in event loops: begun before anybody can leave them, and cancelled at a deadline by an alarm.

Tasks may be left at any moment, also before they have taken their first step. An alarm takes its cancellation back.
"""

from __future__ import annotations

import asyncio
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType

OutcomeT = TypeVar("OutcomeT")


def begun(make: Callable[[], Coroutine[Any, Any, OutcomeT]]) -> Coroutine[Any, Any, OutcomeT]:
    """Return a coroutine for a task, which makes the one that matters in the task's first step, and awaits it.

    A loop that is left drops the tasks that have not begun, and Python warns of each of their coroutines: it "was never
    awaited". The one returned here is no longer at its start, so it is dropped without a word, and no other exists yet.
    """
    found = _making(make)
    found.send(None)
    return found


async def _making(make: Callable[[], Coroutine[Any, Any, OutcomeT]]) -> OutcomeT:
    await _stand()
    return await make()


@coroutine
def _stand() -> Generator[None, None, None]:
    yield


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

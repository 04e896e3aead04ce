"""Tasks in event loops: coroutines that may be dropped before they begin, and an alarm that cancels at a deadline.

A task may be dropped at any moment, also before its first step. An alarm undoes its own cancellation. An object that
belongs to an event loop starts again in the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import TracebackType, coroutine
from typing import Any, Final, TypeVar

from segmented.errors import DatabaseUnavailable, InvalidInput, SegmentedError, StoreUnavailable, TransactionConflict

OutcomeT = TypeVar("OutcomeT")

UNANSWERED: Final = (StoreUnavailable, DatabaseUnavailable, TransactionConflict)
"""Failures after which a repeat may do what was asked."""
REPEATS_MAX: Final = 2_000
REPEAT_SECONDS: Final = 0.25
"""Seconds between two repeats: the end of an order is repeated for eight minutes at least."""

_owed: set[asyncio.Task[None]] = set()
"""The tasks that repeat such ends; an event loop holds only weak references to its tasks."""


def begun(make: Callable[[], Coroutine[Any, Any, OutcomeT]]) -> Coroutine[Any, Any, OutcomeT]:
    """Return a coroutine for a task that creates the real one in the task's first step, and awaits it.

    An event loop that ends drops the tasks that have not begun, and Python warns that their coroutines were "never
    awaited". The coroutine returned here has already started, so it is dropped without a warning, and no other exists.
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


async def to_the_end(make: Callable[[], Coroutine[Any, Any, OutcomeT]], *, owed_to: object = None) -> OutcomeT:
    """Await a coroutine in a task of its own. A cancellation is raised once that task has ended.

    If a server has not answered the task, it is repeated in the background while the store that it is `owed_to` is
    open: it ends an order, and the cancelled caller cannot repeat it.
    """
    task = asyncio.create_task(begun(make))
    try:
        return await asyncio.shield(task)
    except GeneratorExit:  # closed from outside: nothing would clean up after further requests
        if not task.get_loop().is_closed():
            task.cancel()
        raise
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue  # cancelled again: only the store's time-out ends the wait
        # The exception is retrieved, so that no warning is printed; the caller gets the cancellation.
        if not task.cancelled() and is_unanswered(task.exception() or task.result()) and owed_to is not None:
            repeat_later(make, owed_to)
        raise


def is_unanswered(outcome: object) -> bool:
    """Return whether a repeat may do what was asked: of this outcome, or of one in a list."""
    return any(isinstance(one, UNANSWERED) for one in (outcome if isinstance(outcome, list) else [outcome]))


def repeat_later(make: Callable[[], Awaitable[object]], store: object) -> None:
    """Repeat in the background what ends orders, until a server answers or the store is closed: nobody else will."""
    task = asyncio.create_task(begun(partial(_repeat, make, store)))
    _owed.add(task)
    task.add_done_callback(_owed.discard)


async def _repeat(make: Callable[[], Awaitable[object]], store: object) -> None:
    for _ in range(REPEATS_MAX):
        await asyncio.sleep(REPEAT_SECONDS)
        if getattr(store, "is_closed", False) is True:
            return
        try:
            outcome = await make()
        except SegmentedError as error:  # one that is an answer says that the order was decided otherwise
            outcome = error
        if not is_unanswered(outcome):
            return


async def until_loop_ends(end: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    """Await `end()` once the event loop that began this generator shuts generators down, as `asyncio.run` does."""
    try:
        yield
    finally:
        await end()


class OfOneLoop:
    """An object that belongs to one event loop at a time, with its tasks and connections.

    It starts again in another loop, as after a fork: its tasks, and those that wait for it, have ended with their loop.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    def _start_anew(self) -> None:
        """Forget everything that belongs to an event loop."""
        raise NotImplementedError

    def _enter_loop(self) -> bool:
        """Start again if another loop is running now; return whether one is. Raises InvalidInput while both run."""
        loop = asyncio._get_running_loop()  # noqa: SLF001  # documented, and raises nothing outside a loop
        if loop is self._loop or loop is None:
            return False
        if self._loop is not None:
            if self._loop.is_running():
                message = "the store is in use by another event loop, which is running: make a store for each loop"
                raise InvalidInput(message)
            self._start_anew()
        self._loop = loop
        return True


class Alarm:
    """Cancels the task that created it after some seconds; as a `with` statement, it then raises TimeoutError.

    It costs half of `asyncio.timeout`, which matters for each exchange. Before Python 3.11.3 (Debian 12 has 3.11.2),
    `asyncio.timeout` raises CancelledError in the clean-up of a cancelled task; this class behaves like the later one.
    """

    __slots__ = ("_cancellations", "_handle", "_task", "has_rung")

    def __init__(self, seconds: float) -> None:
        """Create an alarm that rings after `seconds`."""
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
        """Undo its own cancellation if it rang; return whether it rang and nothing else cancelled the task."""
        return self.has_rung and self._task is not None and self._task.uncancel() <= self._cancellations

    def stop(self) -> None:
        """Stop the alarm."""
        self._handle.cancel()

    def __enter__(self) -> None:
        """Do nothing: the time counts from the creation."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Raise TimeoutError if it rang and nothing else cancelled the task."""
        self.stop()
        if self.is_silenced() and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

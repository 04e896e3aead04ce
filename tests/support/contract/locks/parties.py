"""Holders and would-be holders: each is one thread, or one task, for as long as it lives, with calls made in its turn.

A library that keeps a lock's owner in a thread-local variable, or takes the current task for it, sees what it would see
in a program.
"""

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

CALL_SECONDS: Final = 60.0
END_SECONDS: Final = 0.5

Call = Future[Any]
"""A call that has begun."""


class CallRunner(Protocol):
    """One thread or task."""

    def start(self, function: Callable[..., Any], *arguments: object) -> Call:
        """Begin a call; a result that can be awaited is awaited."""

    def cancel(self) -> None:
        """Cancel the call under way, where calls can be cancelled."""

    def end(self) -> None:
        """Begin no more calls; wait a little for the last one."""


class ThreadRunner:
    """A thread."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Call, Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="runner", daemon=True)
        self._thread.start()

    def start(self, function: Callable[..., Any], *arguments: object) -> Call:
        call: Call = Future()
        self._calls.put((call, lambda: function(*arguments)))
        return call

    def cancel(self) -> None:
        raise TypeError("a thread's call cannot be cancelled")

    def end(self) -> None:
        self._calls.put(None)
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        while (next_one := self._calls.get()) is not None:
            call, function = next_one
            try:
                call.set_result(function())
            except BaseException as error:  # noqa: BLE001  # it belongs to whoever asks for the result
                call.set_exception(error)


class TaskRunner:
    """A task of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: asyncio.Queue[tuple[Call, Callable[[], Any]] | None] = asyncio.Queue()
        self._under_way: Call | None = None
        self._is_over = threading.Event()
        self._ended = threading.Event()
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._begin)

    def start(self, function: Callable[..., Any], *arguments: object) -> Call:
        call: Call = Future()
        self._loop.call_soon_threadsafe(self._calls.put_nowait, (call, lambda: function(*arguments)))
        return call

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def end(self) -> None:
        self._is_over.set()
        self._loop.call_soon_threadsafe(self._calls.put_nowait, None)
        if not self._ended.wait(END_SECONDS):
            self.cancel()
            self._ended.wait(END_SECONDS)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run(), name="runner")

    def _cancel(self) -> None:
        if self._task is not None and self._under_way is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                await self._answer_next()
            except asyncio.CancelledError:  # it came as the call had just ended
                asyncio.current_task().uncancel()  # type: ignore[union-attr]  # this is one
        self._ended.set()

    async def _answer_next(self) -> None:
        next_one = await self._calls.get()
        if next_one is None:
            return
        self._under_way, function = next_one
        try:
            found = function()
            outcome = await found if inspect.isawaitable(found) else found
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()  # type: ignore[union-attr]  # as above
            self._under_way.set_exception(Cancelled())
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever asks for the result
            self._under_way.set_exception(error)
        else:
            self._under_way.set_result(outcome)
        finally:
            self._under_way = None


class Cancelled(Exception):  # what was asked for
    """The call was cancelled."""


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="lab-loop", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel what is left, and end."""
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self.loop).result(CALL_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CALL_SECONDS)
        self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)

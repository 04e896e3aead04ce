"""Behaviour of every lease: it ends with its `with` statement, stays in its process, and can cancel work when lost.

The cancel scope follows the pattern of `asyncio.timeout`: it undoes its own cancellation with `Task.uncancel` and lets
any other one through.
"""

from __future__ import annotations

import asyncio
import threading
from inspect import currentframe
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, Self

from segmented.errors import InvalidInput, LeaseLost, SegmentedError
from segmented.locks.blocks import Blocks, place_of
from segmented.process import THIS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class RefusesOtherWith:
    """Raises InvalidInput for the kind of `with` statement that a subclass does not define."""

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            """Raise InvalidInput."""
            raise InvalidInput(f"{type(self).__name__} is for asyncio: enter it by 'async with'")

        def __aenter__(self) -> NoReturn:
            """Raise InvalidInput."""
            raise InvalidInput(f"{type(self).__name__} is for threads: enter it by 'with'")

        def __exit__(self, *_: object) -> None:
            """Do nothing: it was not entered."""

        __aexit__ = __exit__


class StaysInItsProcess:
    """Is usable only in the process that acquired it; otherwise two processes would both believe that they hold it."""

    name: str
    _process_id: int
    """The process that acquired it, which each class notes when it is created."""

    def _is_in_its_process(self) -> bool:
        return THIS.process_id == self._process_id

    def _require_own_process(self) -> None:
        if not self._is_in_its_process():
            raise InvalidInput(f"the lease on {self.name!r} belongs to process {self._process_id}; acquire in this one")

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: a lease cannot be pickled."""
        raise InvalidInput(f"the lease on {self.name!r} cannot be pickled: acquire in the process that needs it")


FOR_HOLDERS: Final = frozenset(
    {
        *("name", "holder_id", "fencing_token", "sequencer", "ttl_ms", "trusted_until"),
        *("is_trusted", "is_lost", "has_ended", "remaining", "require"),
        *("renew", "release", "lost", "on_lost", "cancel_scope"),
    }
)
"""Names of a lease that a holder uses. The other public names are for keepers and plans, which share its state."""


class ListsWhatHoldersNeed:
    """Lists the names for holders alone in `dir`."""

    def __dir__(self) -> list[str]:
        """Return the special names and those for holders."""
        return [name for name in super().__dir__() if name.startswith("__") or name in FOR_HOLDERS]


class EndsWithItsAsyncBlock(RefusesOtherWith):
    """Is released at the end of an `async with` statement."""

    blocks: Blocks[Any] | None = None
    """Open blocks of the lock that acquired it, where a second one of the same caller would wait for the first."""

    async def release(self) -> None:
        """End the lease."""
        raise NotImplementedError

    def release_later(self, failure: BaseException) -> None:
        """Repeat a release that `failure` ended in the background, if this kind of lease can."""

    async def __aenter__(self) -> Self:
        if self.blocks is not None:
            self.blocks.entered(asyncio.current_task(), place_of(currentframe()), self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release; a failed release never hides the body's own error."""
        try:
            if self.blocks is not None:
                self.blocks.left(self)
            await self.release()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")
        except GeneratorExit:  # asyncio only
            raise
        except BaseException as failure:  # of a signal handler, perhaps before the first step of `release`
            self.release_later(failure)
            raise


class Losable(Protocol):
    """A lease on one name or several that reports its loss."""

    @property
    def name(self) -> str:
        """Return the name, or the names, that it is on."""

    @property
    def holder_id(self) -> str:
        """Return its holder's id."""

    def require(self) -> None:
        """Raise LeaseLost unless the lease may be trusted."""

    def on_lost(self, callback: Callable[[], None]) -> object:
        """Call `callback` once it is lost."""


class CancelScope:
    """A scope that `AsyncLease.cancel_scope()` returns. It can be entered once."""

    def __init__(self, lease: Losable) -> None:
        """Create a scope that watches `lease`."""
        self._lease = lease
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._has_cancelled = False

    async def __aenter__(self) -> Self:
        """Begin. Raises LeaseLost if the lease is already lost."""
        task = asyncio.current_task()
        if task is None or self._task is not None:
            raise InvalidInput(f"a cancel scope of the lease on {self._lease.name!r} is entered once, in a task")
        self._lease.require()
        self._task, self._cancelling = task, task.cancelling()
        self._lease.on_lost(self._cancel)
        return self

    def _cancel(self) -> None:
        task = self._task
        if task is None or self._has_cancelled:
            return
        if asyncio.current_task() is task:  # the body is running and found the loss itself; cancel it at its next wait
            asyncio.get_running_loop().call_soon(self._cancel)
            return
        self._has_cancelled = True
        task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Turn our own cancellation into LeaseLost; a task that has left the scope is not cancelled any more."""
        task, self._task = self._task, None
        if task is None or not self._has_cancelled:
            return
        is_ours_alone = task.uncancel() <= self._cancelling
        if is_ours_alone and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise LeaseLost(self._lease.name, self._lease.holder_id) from error
        if is_ours_alone and kind is None:  # the body swallowed the cancellation
            raise LeaseLost(self._lease.name, self._lease.holder_id)


# --- For threads: written by `make sync` from the classes above. ---


class EndsWithItsBlock(RefusesOtherWith):
    """Is released at the end of a `with` statement."""

    blocks: Blocks[Any] | None = None
    """Open blocks of the lock that acquired it, where a second one of the same caller would wait for the first."""

    def release(self) -> None:
        """End the lease."""
        raise NotImplementedError

    def release_later(self, failure: BaseException) -> None:
        """Repeat a release that `failure` ended in the background, if this kind of lease can."""

    def __enter__(self) -> Self:
        if self.blocks is not None:
            self.blocks.entered(threading.current_thread(), place_of(currentframe()), self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release; a failed release never hides the body's own error."""
        try:
            if self.blocks is not None:
                self.blocks.left(self)
            self.release()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")
        except BaseException as failure:  # of a signal handler, perhaps before the first step of `release`
            self.release_later(failure)
            raise

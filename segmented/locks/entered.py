"""`with lock as lease:` acquires a lease, and releases it at the end of the block.

Threads and tasks may share a handle, so a block ends the newest lease that its own thread or task entered.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar
from weakref import ref

from segmented.errors import InvalidInput, SegmentedError
from segmented.locks.lease_manners import EndsWithItsAsyncBlock, EndsWithItsBlock, refusing

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType

LeaseT = TypeVar("LeaseT", bound=EndsWithItsBlock)
AsyncLeaseT = TypeVar("AsyncLeaseT", bound=EndsWithItsAsyncBlock)
AnyLeaseT = TypeVar("AnyLeaseT")


class Blocks(Generic[AnyLeaseT]):
    """The leases of the blocks that are open now, each with the thread or task that entered it."""

    def __init__(self) -> None:
        """Create an empty list."""
        self._open: list[tuple[object, AnyLeaseT]] = []
        self._entered: list[tuple[object, ref[AnyLeaseT]]] = []
        """Leases that have a block themselves, `with lock.acquire():`. Weak: a dropped lease gives its warning."""

    def opened(self, who: object, lease: AnyLeaseT) -> AnyLeaseT:
        """Note the lease of a block that begins."""
        self._open.append((who, lease))
        return lease

    def entered(self, who: object, lease: AnyLeaseT) -> None:
        """Note a lease that its holder has entered itself."""
        self._entered.append((who, ref(lease)))

    def left(self, lease: AnyLeaseT) -> None:
        """Forget a lease that was entered, if it was."""
        for entry in tuple(self._entered):
            if entry[1]() is lease or entry[1]() is None:
                with suppress(ValueError):  # another thread has removed a dropped one
                    self._entered.remove(entry)

    def refuse_nested(self, who: object, kind: str, name: str) -> None:
        """Raise InvalidInput if the thread or task is in a block of this lock whose lease is held: it would wait."""
        outer = [lease for by, lease in tuple(self._open) if by == who]
        outer += [lease for by, found in tuple(self._entered) if by == who and (lease := found()) is not None]
        if any(getattr(lease, "is_trusted", False) for lease in outer):
            use = f"{'Async' * kind.startswith('Async')}ReentrantLock"
            message = (
                f"{name} is held by an outer block of the same caller, so this one would wait for itself: use {use}"
            )
            raise InvalidInput(message)

    def newest(self, who: object) -> tuple[object, AnyLeaseT]:
        """Return the entry of the block that ends. A block that another thread or task ends is the newest of all."""
        return next((entry for entry in reversed(self._open) if entry[0] == who), self._open[-1])

    def close(self, ended: tuple[object, AnyLeaseT]) -> None:
        """Remove the entry of a block, if it is still there."""
        with suppress(ValueError):
            self._open.remove(ended)


class Entered(Generic[LeaseT]):
    """A lock that a `with` statement acquires, for threads."""

    _blocks: Blocks[LeaseT]
    _is_exclusive: ClassVar[bool] = False
    """Whether a second block of the same caller would wait for the first one."""

    if TYPE_CHECKING:

        def acquire(self) -> LeaseT:
            """Return the lease."""

    else:
        __aenter__, __aexit__ = refusing("with")

    def __enter__(self) -> LeaseT:
        """Acquire as `acquire()` does. Raises InvalidInput for a block inside a block of the same exclusive lock."""
        if self._is_exclusive:
            self._blocks.refuse_nested(threading.get_ident(), type(self).__name__, repr(self))
        return self._blocks.opened(threading.get_ident(), self.acquire())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease that this block acquired."""
        ended: tuple[object, LeaseT] | None = None
        try:
            ended = self._blocks.newest(threading.get_ident())
            self._blocks.close(ended)
            ended[1].__exit__(kind, error, trace)
        except SegmentedError:
            raise
        except BaseException as failure:  # of a signal handler, perhaps before the lease's own first step
            ended = ended or self._blocks.newest(threading.get_ident())
            self._blocks.close(ended)
            ended[1].release_later(failure)
            raise


class AsyncEntered(Generic[AsyncLeaseT]):
    """A lock that a `with` statement acquires, for asyncio."""

    _blocks: Blocks[AsyncLeaseT]
    _is_exclusive: ClassVar[bool] = False

    if TYPE_CHECKING:

        def acquire(self) -> Awaitable[AsyncLeaseT]:
            """Return an awaitable for the lease."""

    else:
        __enter__, __exit__ = refusing("async with")

    async def __aenter__(self) -> AsyncLeaseT:
        """Acquire as `acquire()` does. Raises InvalidInput for a block inside a block of the same exclusive lock."""
        if self._is_exclusive:
            self._blocks.refuse_nested(asyncio.current_task(), type(self).__name__, repr(self))
        return self._blocks.opened(asyncio.current_task(), await self.acquire())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease that this block acquired."""
        ended: tuple[object, AsyncLeaseT] | None = None
        try:
            ended = self._blocks.newest(asyncio.current_task())
            self._blocks.close(ended)
            await ended[1].__aexit__(kind, error, trace)
        except (SegmentedError, GeneratorExit):
            raise
        except BaseException as failure:  # of a signal handler, perhaps before the lease's own first step
            ended = ended or self._blocks.newest(asyncio.current_task())
            self._blocks.close(ended)
            ended[1].release_later(failure)
            raise

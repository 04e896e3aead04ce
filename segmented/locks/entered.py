"""`with lock as lease:` acquires a lease, and releases it at the end of the block.

Threads, tasks and generators may share a handle, so a block ends the lease that its own `with` statement acquired.
"""

from __future__ import annotations

import asyncio
import threading
from inspect import currentframe
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from segmented.errors import SegmentedError
from segmented.locks.blocks import Block, Blocks, place_of
from segmented.locks.lease_manners import EndsWithItsAsyncBlock, EndsWithItsBlock, RefusesOtherWith

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType


LeaseT = TypeVar("LeaseT", bound=EndsWithItsBlock)
AsyncLeaseT = TypeVar("AsyncLeaseT", bound=EndsWithItsAsyncBlock)


class AsyncEntered(RefusesOtherWith, Generic[AsyncLeaseT]):
    """A lock that an `async with` statement acquires, for asyncio."""

    _blocks: Blocks[AsyncLeaseT]
    _is_exclusive: ClassVar[bool] = False
    """Whether a second block of the same caller would wait for the first one."""

    if TYPE_CHECKING:

        def acquire(self) -> Awaitable[AsyncLeaseT]:
            """Return the lease."""

    async def __aenter__(self) -> AsyncLeaseT:
        """Acquire as `acquire()` does. Raises InvalidInput for a block inside a block of the same exclusive lock."""
        if self._is_exclusive:
            self._blocks.refuse_in_task(self)  # asyncio only
            # threads: self._blocks.refuse_in_thread(self, currentframe())
        place = place_of(currentframe())
        return self._blocks.opened(asyncio.current_task(), place, await self.acquire())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease that this block acquired."""
        ended: Block[AsyncLeaseT] | None = None
        try:
            ended = self._blocks.ending(asyncio.current_task(), place_of(currentframe()))
            self._blocks.close(ended)
            await ended.lease.__aexit__(kind, error, trace)
        except (SegmentedError, GeneratorExit):
            raise
        except BaseException as failure:  # of a signal handler, perhaps before the lease's own first step
            ended = ended or self._blocks.ending(asyncio.current_task(), place_of(currentframe()))
            self._blocks.close(ended)
            ended.lease.release_later(failure)
            raise


# --- For threads: written by `make sync` from the classes above. ---


class Entered(RefusesOtherWith, Generic[LeaseT]):
    """A lock that a `with` statement acquires, for threads."""

    _blocks: Blocks[LeaseT]
    _is_exclusive: ClassVar[bool] = False
    """Whether a second block of the same caller would wait for the first one."""

    if TYPE_CHECKING:

        def acquire(self) -> LeaseT:
            """Return the lease."""

    def __enter__(self) -> LeaseT:
        """Acquire as `acquire()` does. Raises InvalidInput for a block inside a block of the same exclusive lock."""
        if self._is_exclusive:
            self._blocks.refuse_in_thread(self, currentframe())
        place = place_of(currentframe())
        return self._blocks.opened(threading.current_thread(), place, self.acquire())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease that this block acquired."""
        ended: Block[LeaseT] | None = None
        try:
            ended = self._blocks.ending(threading.current_thread(), place_of(currentframe()))
            self._blocks.close(ended)
            ended.lease.__exit__(kind, error, trace)
        except (SegmentedError, GeneratorExit):
            raise
        except BaseException as failure:  # of a signal handler, perhaps before the lease's own first step
            ended = ended or self._blocks.ending(threading.current_thread(), place_of(currentframe()))
            self._blocks.close(ended)
            ended.lease.release_later(failure)
            raise

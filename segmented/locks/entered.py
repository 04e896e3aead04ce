"""`with lock as lease:` acquires a lease, and releases it at the end of the block.

Threads and tasks may share a handle, so a block ends the newest lease that its own thread or task entered.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import TracebackType

LeaseT = TypeVar("LeaseT", bound="AbstractContextManager[object]")
AsyncLeaseT = TypeVar("AsyncLeaseT", bound="AbstractAsyncContextManager[object]")
AnyLeaseT = TypeVar("AnyLeaseT")


class Blocks(Generic[AnyLeaseT]):
    """The leases of the blocks that are open now, each with the thread or task that entered it."""

    def __init__(self) -> None:
        """Create an empty list."""
        self._open: list[tuple[object, AnyLeaseT]] = []

    def opened(self, who: object, lease: AnyLeaseT) -> AnyLeaseT:
        """Note the lease of a block that begins."""
        self._open.append((who, lease))
        return lease

    def closing(self, who: object) -> AnyLeaseT:
        """Return the lease of the block that ends. A block that another thread or task ends is the newest of all."""
        found = next((entry for entry in reversed(self._open) if entry[0] == who), self._open[-1])
        self._open.remove(found)
        return found[1]


class Entered(Generic[LeaseT]):
    """A lock that a `with` statement acquires, for threads."""

    _blocks: Blocks[LeaseT]

    if TYPE_CHECKING:

        def acquire(self) -> LeaseT:
            """Return the lease."""

    def __enter__(self) -> LeaseT:
        """Acquire as `acquire()` does, and return the lease."""
        return self._blocks.opened(threading.get_ident(), self.acquire())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease that this block acquired."""
        self._blocks.closing(threading.get_ident()).__exit__(kind, error, trace)


class AsyncEntered(Generic[AsyncLeaseT]):
    """A lock that a `with` statement acquires, for asyncio."""

    _blocks: Blocks[AsyncLeaseT]

    if TYPE_CHECKING:

        def acquire(self) -> Awaitable[AsyncLeaseT]:
            """Return an awaitable for the lease."""

    async def __aenter__(self) -> AsyncLeaseT:
        """Acquire as `acquire()` does, and return the lease."""
        return self._blocks.opened(asyncio.current_task(), await self.acquire())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease that this block acquired."""
        await self._blocks.closing(asyncio.current_task()).__aexit__(kind, error, trace)

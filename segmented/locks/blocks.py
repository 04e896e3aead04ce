"""`with lock as lease:` acquires a lease, and releases it at the end of the block.

Threads, tasks and generators may share a handle, so a block ends the lease that its own `with` statement acquired. A
thread is not a caller: a web framework enters a generator on a thread of a pool, which then serves the next request. So
a block belongs to the frame of its `with` statement, or to the ExitStack that entered it. A thread that asks for the
lock waits for itself only if that frame is on its stack, inside the block.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar
from weakref import ref

from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType, TracebackType
    from typing import NoReturn

caller_frame: Final = sys._getframe  # noqa: SLF001  # documented; inspect.currentframe is one call more
OF_STACKS: Final = frozenset({"enter_context", "enter_async_context", "__exit__", "__aexit__"})
"""Methods of ExitStack and AsyncExitStack that begin and end the blocks of others."""


def refusing(right: str) -> tuple[Callable[..., NoReturn], Callable[..., None]]:
    """Return the two methods of the other kind of `with` statement than `right`; the first one raises InvalidInput."""

    def enter(lock: object) -> NoReturn:
        use = "asyncio" if right.startswith("async") else "threads"
        message = f"{type(lock).__name__} is for {use}: enter it by '{right}'"
        raise InvalidInput(message)

    return enter, lambda *_: None


class Place(NamedTuple):
    """The code that enters a block."""

    frame: FrameType | None
    """The frame of the `with` statement, or of other code that calls `__enter__`."""
    step: int
    """Its instruction then."""
    stack: object
    """The ExitStack that entered the block, if one did."""
    who: object
    """The thread or task."""


class Block(NamedTuple):
    """An open block."""

    place: Place
    lease: Callable[[], Any]
    """Returns its lease; None if that was dropped."""


def place_of(caller: FrameType | None, who: object) -> Place:
    """Return the place of the code that runs in this frame."""
    if caller is None:
        return Place(None, -1, None, who)
    stack = caller.f_locals.get("self") if caller.f_code.co_name in OF_STACKS else None
    is_stack = isinstance(stack, ExitStack | AsyncExitStack)
    return Place(caller, caller.f_lasti, stack if is_stack else None, who)


class Blocks(list[Block]):
    """The blocks of a lock that are open now, and those of its leases: `with lock.acquire():`.

    An exception of a signal handler between a grant and its entry here leaves a lease that nobody ends: few
    instructions stand between them, and before a release.
    """

    def left(self, lease: object) -> None:
        """Forget the block of a lease, if there is one."""
        for block in self[::-1]:
            if (found := block.lease()) is lease or found is None:
                with suppress(ValueError):  # another thread has ended it
                    self.remove(block)

    def ending(self, caller: FrameType | None, who: object) -> Any:  # noqa: ANN401  # a lease of any lock
        """Return the lease of the block that ends: the newest of the same `with` statement, or of the same ExitStack.

        Statements of generators end in any order, and in any thread. A block that other code entered is the newest one
        of its thread or task, or the only one there is. Raises InvalidInput rather than end a block of others.
        """
        blocks = self[::-1]
        if len(blocks) == 1:
            return blocks[0].lease()
        ending = place_of(caller, who)
        for found in (
            [one for one in blocks if one.place.frame is ending.frame],
            [one for one in blocks if one.place.stack is not None and one.place.stack is ending.stack],
            [one for one in blocks if one.place.who is who],
        ):
            if found:
                return found[0].lease()
        message = (
            f"which of {len(blocks)} open blocks of one lock ends is not known, as another thread or task entered it: "
            "end it where it was entered, or use `with lock.acquire():`"
        )
        raise InvalidInput(message)

    def refuse_inner(self, lock: object, frame: FrameType | None) -> None:
        """Raise InvalidInput if the caller is inside a block of this lock whose lease is held: it waits for itself.

        A thread is known by its frame, a task (None) by itself.
        """
        use = "AsyncReentrantLock" if frame is None else "ReentrantLock"
        for place in [block.place for block in self[:] if getattr(block.lease(), "is_trusted", False)]:
            inner, is_inside = frame, frame is None and place.who is asyncio.current_task()
            while inner is not None and not is_inside:
                # At the same instruction, the frame calls many: it is a thread of a pool, or a loop.
                is_inside = inner is place.frame and inner.f_lasti != place.step
                inner = inner.f_back
            if is_inside:
                who = "held by an outer block of the same caller, so this one would wait for itself"
                message = f"{lock!r} is {who}: use {use}"
                raise InvalidInput(message)


class EndsWithItsBlock:
    """A lease that is released at the end of a `with` statement."""

    blocks: Blocks | None = None
    """Open blocks of the lock that acquired it, where a second one of the same thread would wait for the first."""

    def release(self) -> None:
        """End the lease."""
        raise NotImplementedError

    if not TYPE_CHECKING:
        __aenter__, __aexit__ = refusing("with")

    def __enter__(self) -> Self:
        """Return the lease."""
        if self.blocks is not None:
            self.blocks.append(Block(place_of(caller_frame(1), threading.current_thread()), ref(self)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release; a failed release never hides the body's own error."""
        try:
            self.release()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")
        finally:
            if self.blocks is not None:
                self.blocks.left(self)


class EndsWithItsAsyncBlock:
    """A lease that is released at the end of an `async with` statement."""

    blocks: Blocks | None = None
    """As for `EndsWithItsBlock`, by task."""

    async def release(self) -> None:
        """End the lease."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Return the lease."""
        if self.blocks is not None:
            self.blocks.append(Block(place_of(caller_frame(1), asyncio.current_task()), ref(self)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release; a failed release never hides the body's own error."""
        try:
            await self.release()
        except SegmentedError as failure:
            if error is None:
                raise
            error.add_note(f"and afterwards: {failure}")
        finally:
            if self.blocks is not None:
                self.blocks.left(self)


LeaseT = TypeVar("LeaseT", bound=EndsWithItsBlock)
AsyncLeaseT = TypeVar("AsyncLeaseT", bound=EndsWithItsAsyncBlock)


class Entered(Generic[LeaseT]):
    """A lock that a `with` statement acquires, for threads."""

    _blocks: Blocks
    _is_exclusive: ClassVar[bool] = False
    """Whether a second block of the same caller would wait for the first one."""

    if TYPE_CHECKING:

        def acquire(self) -> LeaseT:
            """Return the lease."""

    else:
        __aenter__, __aexit__ = refusing("with")

    def __enter__(self) -> LeaseT:
        """Acquire as `acquire()` does. Raises InvalidInput for a block inside a block of the same exclusive lock."""
        caller = caller_frame(1)
        if self._is_exclusive:
            self._blocks.refuse_inner(self, caller)
        place = place_of(caller, threading.current_thread())
        lease = self.acquire()
        self._blocks.append(Block(place, lambda: lease))
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease that this block acquired."""
        self._blocks.ending(caller_frame(1), threading.current_thread()).__exit__(kind, error, trace)


class AsyncEntered(Generic[AsyncLeaseT]):
    """A lock that a `with` statement acquires, for asyncio."""

    _blocks: Blocks
    _is_exclusive: ClassVar[bool] = False

    if TYPE_CHECKING:

        def acquire(self) -> Awaitable[AsyncLeaseT]:
            """Return an awaitable for the lease."""

    else:
        __enter__, __exit__ = refusing("async with")

    async def __aenter__(self) -> AsyncLeaseT:
        """Acquire as `acquire()` does. Raises InvalidInput for a block inside a block of the same exclusive lock."""
        if self._is_exclusive:
            self._blocks.refuse_inner(self, None)
        place = place_of(caller_frame(1), asyncio.current_task())
        lease = await self.acquire()
        self._blocks.append(Block(place, lambda: lease))
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease that this block acquired."""
        await self._blocks.ending(caller_frame(1), asyncio.current_task()).__aexit__(kind, error, trace)

"""The `with` statements of locks and leases: which blocks are open, which caller may enter one, and how one ends.

`with lock as lease:` acquires a lease, and releases it at the end of the block; `with lock.acquire() as lease:` does so
too. Threads, tasks and generators may share a handle, so a block ends the lease that its own `with` statement acquired.

A thread is not a caller: a web framework enters a generator on a thread of a pool, which then serves the next request,
and the system gives the number of an ended thread to a new one. So a block belongs to the frame of its `with`
statement, or to the ExitStack that entered it. A thread that asks for the lock waits for itself only if that frame is
on its stack, inside the block. A generator that is suspended is not: whoever holds it may end it, from any thread.

The cancel scope follows the pattern of `asyncio.timeout`: it undoes its own cancellation with `Task.uncancel` and lets
any other one through.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from inspect import currentframe
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, NoReturn, Protocol, Self, TypeVar
from weakref import ref

from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, SegmentedError
from segmented.process import THIS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType, TracebackType

    from segmented.clock import Duration

AnyLeaseT = TypeVar("AnyLeaseT")
LeaseT = TypeVar("LeaseT", bound="EndsWithItsBlock")
AsyncLeaseT = TypeVar("AsyncLeaseT", bound="EndsWithItsAsyncBlock")
OF_STACKS: Final = frozenset({"enter_context", "enter_async_context", "__exit__", "__aexit__"})
"""Methods of ExitStack and AsyncExitStack that begin and end the blocks of others."""


class Place(NamedTuple):
    """The code that entered a block: a `with` statement, or a call of `__enter__` by other code."""

    frame: int
    code: object
    step: int
    """The instruction of the frame."""
    stack: object
    """The ExitStack that called, if one did."""


def place_of(frame: FrameType | None) -> Place:
    """Return the place that calls the method of this frame: of one `with` statement, frame and code stay the same."""
    caller = None if frame is None else frame.f_back
    if caller is None:
        return Place(0, object(), 0, None)  # unknown: it is the place of no other
    code, stack = caller.f_code, None
    if code.co_name in OF_STACKS:
        found = caller.f_locals.get("self")
        stack = found if isinstance(found, ExitStack | AsyncExitStack) else None
    return Place(id(caller), code, caller.f_lasti, stack)


@dataclass(frozen=True, slots=True, eq=False)
class Block(Generic[AnyLeaseT]):
    """An open block."""

    who: object
    """The thread or task that entered it."""
    place: Place
    lease: AnyLeaseT


class Blocks(Generic[AnyLeaseT]):
    """The blocks of a lock that are open now."""

    def __init__(self) -> None:
        self._open: list[Block[AnyLeaseT]] = []
        self._entered: dict[int, tuple[object, Place, ref[AnyLeaseT]]] = {}
        """Leases that have a block themselves, `with lock.acquire():`. Weak: a dropped lease gives its warning."""

    def opened(self, who: object, place: Place, lease: AnyLeaseT) -> AnyLeaseT:
        """Note the lease of a block that begins."""
        self._open.append(Block(who, place, lease))
        return lease

    def entered(self, who: object, place: Place, lease: AnyLeaseT) -> None:
        """Note a lease that its holder has entered itself."""
        number, entered = id(lease), self._entered
        entered[number] = who, place, ref(lease, lambda _: entered.pop(number, None))

    def left(self, lease: AnyLeaseT) -> None:
        """Forget a lease that was entered, if it was."""
        self._entered.pop(id(lease), None)

    def refuse_in_task(self, lock: object) -> None:
        """Raise InvalidInput if the task is in a block of this lock whose lease is held: it would wait for itself."""
        task = asyncio.current_task()
        if any(who is task for who, _ in self._held()):
            raise InvalidInput(_nested(lock))

    def refuse_in_thread(self, lock: object, frame: FrameType | None) -> None:
        """Raise InvalidInput if this thread would wait for itself.

        It is inside a block of this lock whose lease is held, or such a block's task cannot go on while it waits.
        """
        held = self._held()
        running: dict[tuple[int, object], int] = {}
        while held and frame is not None:
            running[id(frame), frame.f_code] = frame.f_lasti
            frame = frame.f_back
        for _, place in held:  # at the same instruction, the frame calls many: it is a thread of a pool, or a loop
            if running.get((place.frame, place.code), place.step) != place.step:
                raise InvalidInput(_nested(lock))
        if held and asyncio._get_running_loop() is not None:  # noqa: SLF001  # documented, and raises nothing
            thread = threading.current_thread()
            if any(who is thread for who, _ in held):
                raise InvalidInput(
                    f"{lock!r} is held by another task of this event loop, which would stop while this one waits:"
                    " use the Async class of this lock"
                )

    def _held(self) -> list[tuple[object, Place]]:
        """Return who entered the blocks whose leases are held, and where."""
        if not self._open and not self._entered:
            return []
        found = [(block.who, block.place, block.lease) for block in tuple(self._open)]
        found += [
            (who, place, lease) for who, place, kept in tuple(self._entered.values()) if (lease := kept()) is not None
        ]
        return [(who, place) for who, place, lease in found if getattr(lease, "is_trusted", False)]

    def ending(self, who: object, place: Place) -> Block[AnyLeaseT]:
        """Return the block that ends: the newest one of the same `with` statement, or of the same ExitStack.

        Statements of generators end in any order, and in any thread. A block that other code entered is the newest one
        of its thread or task, or the only one there is. Raises InvalidInput rather than end a block of others.
        """
        blocks = tuple(reversed(self._open))
        for mine in (
            [one for one in blocks if one.place[:2] == place[:2]],
            [one for one in blocks if place.stack is not None and one.place.stack is place.stack],
            [one for one in blocks if one.who is who],
        ):
            if mine:
                return mine[0]
        if len(blocks) != 1:
            raise InvalidInput(
                f"which of {len(blocks)} open blocks of one lock ends is not known, as another thread or task entered"
                " it: end it where it was entered, or use `with lock.acquire():`"
            )
        return blocks[0]

    def close(self, ended: Block[AnyLeaseT]) -> None:
        """Remove the entry of a block, if it is still there."""
        with suppress(ValueError):
            self._open.remove(ended)


def _nested(lock: object) -> str:
    use = "AsyncReentrantLock" if type(lock).__name__.startswith("Async") else "ReentrantLock"
    return f"{lock!r} is held by an outer block of the same caller, so this one would wait for itself: use {use}"


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
        *("names", "fencing_tokens"),
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


class AsyncEntered(RefusesOtherWith, Generic[AsyncLeaseT]):
    """A lock that an `async with` statement acquires, for asyncio."""

    _blocks: Blocks[AsyncLeaseT]
    _is_exclusive: ClassVar[bool] = False
    """Whether a second block of the same caller would wait for the first one."""

    if TYPE_CHECKING:

        def acquire(self, timeout: Duration | None = ...) -> Awaitable[AsyncLeaseT]:
            """Return the lease."""

    async def try_acquire(self) -> AsyncLeaseT | None:
        """Return the lease if the lock is free now, otherwise None."""
        try:
            return await self.acquire(timeout=0)
        except AcquireTimeout:
            return None

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


class Entered(RefusesOtherWith, Generic[LeaseT]):
    """A lock that a `with` statement acquires, for threads."""

    _blocks: Blocks[LeaseT]
    _is_exclusive: ClassVar[bool] = False
    """Whether a second block of the same caller would wait for the first one."""

    if TYPE_CHECKING:

        def acquire(self, timeout: Duration | None = ...) -> LeaseT:
            """Return the lease."""

    def try_acquire(self) -> LeaseT | None:
        """Return the lease if the lock is free now, otherwise None."""
        try:
            return self.acquire(timeout=0)
        except AcquireTimeout:
            return None

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

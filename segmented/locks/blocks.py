"""The blocks of a lock that are open now, by the `with` statement that entered them.

A thread is not a caller: a web framework enters a generator on a thread of a pool, which then serves the next request,
and the system gives the number of an ended thread to a new one. So a block belongs to the frame of its `with`
statement, or to the ExitStack that entered it. A thread that asks for the lock waits for itself only if that frame is
on its stack, inside the block. A generator that is suspended is not: whoever holds it may end it, from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar
from weakref import ref

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from types import FrameType

AnyLeaseT = TypeVar("AnyLeaseT")
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

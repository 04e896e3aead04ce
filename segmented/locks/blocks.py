"""The blocks of a lock that are open now, by the thread or task that entered them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar
from weakref import ref

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from types import FrameType

AnyLeaseT = TypeVar("AnyLeaseT")
Place: TypeAlias = tuple[int, object]
"""The frame of a `with` statement, and its code."""


def place_of(frame: FrameType | None) -> Place:
    """Return the place of the `with` statement that calls the method of this frame: the same when it ends."""
    caller = None if frame is None else frame.f_back
    return (0, object()) if caller is None else (id(caller), caller.f_code)  # unknown: it is the place of no other


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
        """Create an empty list."""
        self._open: list[Block[AnyLeaseT]] = []
        self._entered: dict[int, tuple[object, ref[AnyLeaseT]]] = {}
        """Leases that have a block themselves, `with lock.acquire():`. Weak: a dropped lease gives its warning."""

    def opened(self, who: object, place: Place, lease: AnyLeaseT) -> AnyLeaseT:
        """Note the lease of a block that begins."""
        self._open.append(Block(who, place, lease))
        return lease

    def entered(self, who: object, lease: AnyLeaseT) -> None:
        """Note a lease that its holder has entered itself."""
        number, entered = id(lease), self._entered
        entered[number] = who, ref(lease, lambda _: entered.pop(number, None))

    def left(self, lease: AnyLeaseT) -> None:
        """Forget a lease that was entered, if it was."""
        self._entered.pop(id(lease), None)

    def refuse_nested(self, who: object, kind: str, name: str) -> None:
        """Raise InvalidInput if the thread or task is in a block of this lock whose lease is held: it would wait."""
        outer = [block.lease for block in tuple(self._open) if block.who == who]
        outer += [lease for by, found in tuple(self._entered.values()) if by == who and (lease := found()) is not None]
        if any(getattr(lease, "is_trusted", False) for lease in outer):
            use = f"{'Async' * kind.startswith('Async')}ReentrantLock"
            message = (
                f"{name} is held by an outer block of the same caller, so this one would wait for itself: use {use}"
            )
            raise InvalidInput(message)

    def ending(self, who: object, place: Place) -> Block[AnyLeaseT]:
        """Return the block that ends: the newest one of the same `with` statement.

        Statements of generators end in any order, and in any thread. A block that an ExitStack entered is the newest
        one of its thread or task, or the only one there is. Raises InvalidInput rather than end a block of others.
        """
        blocks = tuple(reversed(self._open))
        for mine in ([one for one in blocks if one.place == place], [one for one in blocks if one.who == who]):
            if mine:
                return mine[0]
        if len(blocks) != 1:
            message = (
                f"which of {len(blocks)} open blocks of one lock ends is not known, as another thread or task entered"
                " it: end it where it was entered, or use `with lock.acquire():`"
            )
            raise InvalidInput(message)
        return blocks[0]

    def close(self, ended: Block[AnyLeaseT]) -> None:
        """Remove the entry of a block, if it is still there."""
        with suppress(ValueError):
            self._open.remove(ended)

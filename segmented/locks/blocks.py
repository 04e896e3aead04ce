"""The blocks of a lock that are open now, by the thread or task that entered them."""

from __future__ import annotations

from contextlib import suppress
from typing import Generic, TypeVar
from weakref import ref

from segmented.errors import InvalidInput

AnyLeaseT = TypeVar("AnyLeaseT")


class Blocks(Generic[AnyLeaseT]):
    """The leases of the blocks that are open now, each with the thread or task that entered it."""

    def __init__(self) -> None:
        """Create an empty list."""
        self._open: list[tuple[object, AnyLeaseT]] = []
        self._entered: dict[int, tuple[object, ref[AnyLeaseT]]] = {}
        """Leases that have a block themselves, `with lock.acquire():`. Weak: a dropped lease gives its warning."""

    def opened(self, who: object, lease: AnyLeaseT) -> AnyLeaseT:
        """Note the lease of a block that begins."""
        self._open.append((who, lease))
        return lease

    def entered(self, who: object, lease: AnyLeaseT) -> None:
        """Note a lease that its holder has entered itself."""
        place, entered = id(lease), self._entered
        entered[place] = who, ref(lease, lambda _: entered.pop(place, None))

    def left(self, lease: AnyLeaseT) -> None:
        """Forget a lease that was entered, if it was."""
        self._entered.pop(id(lease), None)

    def refuse_nested(self, who: object, kind: str, name: str) -> None:
        """Raise InvalidInput if the thread or task is in a block of this lock whose lease is held: it would wait."""
        outer = [lease for by, lease in tuple(self._open) if by == who]
        outer += [lease for by, found in tuple(self._entered.values()) if by == who and (lease := found()) is not None]
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

"""One name belongs to one kind of lock at a time, as the type of its main key has it on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from segmented.errors import WrongKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.protocol import Operation


class Kinds:
    """Knows for each kind whether it holds a name, and by which operations it takes one."""

    def __init__(self) -> None:
        """Know none."""
        self._kinds: list[tuple[Callable[[str], bool], tuple[type[Operation[Any]], ...]]] = []
        self._acquiring: set[type[Operation[Any]]] = set()

    def add(self, holds: Callable[[str], bool], *acquiring: type[Operation[Any]]) -> None:
        """Make a kind known by its question and its operations, each of which has a `name`."""
        self._kinds.append((holds, acquiring))
        self._acquiring.update(acquiring)

    def check(self, operation: Operation[Any]) -> None:
        """Raise WrongKind if the operation would take a name that another kind holds."""
        if type(operation) not in self._acquiring:
            return
        name: str = operation.name  # type: ignore[attr-defined]  # every operation that takes a lock has one
        for holds, acquiring in self._kinds:
            if type(operation) not in acquiring and holds(name):
                message = f"the name {name!r} belongs to another kind of lock"
                raise WrongKind(message)

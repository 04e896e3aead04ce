"""The kinds of lock: the folders here whose `model.py` has a record `KIND`.

The model of a server, an operator's view of it, and the tests and tables of kinds derive from these records.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from segmented import protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from segmented.clock import Clock
    from segmented.models.locks import LockKind, LockState
    from segmented.protocol import Operation

    Bodies = Mapping[type[Operation[Any]], Callable[[Any], object]]
    """The method that performs each operation."""


class Model(Protocol):
    """The reference model of one concept."""

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""


class KindModel(Model, Protocol):
    """The reference model of one kind of lock, with all its names."""

    def holds(self, name: str) -> bool:
        """Return whether a lock of this kind has the name now."""

    def names(self) -> Iterable[str]:
        """Return the names that it has ever seen, or some of them."""

    def state(self, name: str, holders_max: int) -> LockState | None:
        """Return who holds a name; None when nobody does."""

    def revoke(self, name: str) -> None:
        """End every lease on a name, and wake those who wait."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of lock."""

    name: LockKind
    """As `segmented lock show` names it, and the scripts do."""
    model: Callable[[Clock, Callable[[str], None]], KindModel]
    """Makes a model; it calls its second argument with each channel that gets a message."""
    takes: tuple[type[Operation[Any]], ...]
    """The operations that take a name, which must not belong to another kind then. Each has a `name`."""


@cache
def lock_kinds() -> tuple[Kind, ...]:
    """Return all kinds, by the names of their folders."""
    found = []
    for folder in sorted(module.name for module in pkgutil.iter_modules(protocol.__path__) if module.ispkg):
        name = f"{protocol.__name__}.{folder}.model"
        if find_spec(name) is not None:
            kind: Kind | None = getattr(import_module(name), "KIND", None)
            found += [] if kind is None else [kind]
    return tuple(found)

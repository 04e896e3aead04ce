"""The kinds of lock: the folders here whose `model.py` defines `KIND`.

The model of a server, the operator's view, and the tests and tables of kinds derive from these records.
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
    from segmented.models.locks import LockState
    from segmented.protocol.base import Operation

    Bodies = Mapping[type[Operation[Any]], Callable[[Any], object]]
    """The method that performs each operation."""


class Model(Protocol):
    """The reference model of one concept."""

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""


class KindModel(Model, Protocol):
    """The reference model of one kind of lock, with all its names."""

    def holds(self, name: str) -> bool:
        """Return whether a lock of this kind holds the name now."""

    def names(self) -> Iterable[str]:
        """Return the names that it has seen; it may leave out some that are free."""

    def state(self, name: str, holders_max: int) -> LockState | None:
        """Return the state of a name's lock, or None if it is free."""

    def revoke(self, name: str) -> None:
        """End every lease on a name and wake its waiters."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of lock."""

    name: str
    """The kind's name in `segmented lock show` and in the scripts."""
    handle: str
    """The class in `segmented.locks`; the class for asyncio has `Async` before its name."""
    holders: str
    """The holders that it admits, for the page of all kinds."""
    model: Callable[[Clock, Callable[[str], None]], KindModel]
    """Creates a model, which calls its second argument with each channel that gets a message."""
    takes: tuple[type[Operation[Any]], ...]
    """The operations that take a name; it must not belong to another kind. Each has a `name`."""
    has_token: bool = True
    """Whether a lease has a fencing token."""
    counts_waiters: bool = False
    """Whether `segmented lock show` knows how many wait."""

    @property
    def folder(self) -> str:
        """The folder of its operations, scripts and model."""
        return "/".join(self.takes[0].__module__.split(".")[:-1]) + "/"


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

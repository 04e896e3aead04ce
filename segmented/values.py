"""As the standard library's `dataclasses`, but a frozen class without checks of its own is made in a third of the time.

A sale makes two instances an order, and each process that imports the library makes its 300 classes. In the standard
library a frozen class sets each field by a call, and gets six functions that are compiled for it alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, astuple, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, eq: bool = True, **options: bool) -> Callable[[type], type]:
        """As `dataclasses.dataclass`. For a type checker `frozen` is what it says.

        While a program runs, only classes with an order or with `__post_init__`, which checks fields, are frozen.
        """

        def decorate(cls: type) -> type:
            if not frozen or options.get("order") or hasattr(cls, "__post_init__"):
                return dataclasses.dataclass(cls, frozen=frozen, eq=eq, **options)
            own = vars(cls)
            light = dataclasses.dataclass(cls, eq=False, repr=False, **options)
            for name, function in {"__repr__": _repr, **({"__eq__": _eq, "__hash__": _hash} if eq else {})}.items():
                if name not in own:
                    setattr(light, name, function)
            return light

        return decorate


__all__ = ["asdict", "astuple", "dataclass", "field", "fields", "is_dataclass", "replace"]


def _repr(value: Any) -> str:  # noqa: ANN401  # of any class
    shown = (f"{one.name}={getattr(value, one.name)!r}" for one in fields(value) if one.repr)
    return f"{type(value).__qualname__}({', '.join(shown)})"


def _eq(value: object, other: object) -> bool:
    return _compared(value) == _compared(other) if type(value) is type(other) else NotImplemented


def _hash(value: object) -> int:
    return hash(_compared(value))


def _compared(value: Any) -> tuple[Any, ...]:  # noqa: ANN401  # as above
    return tuple(getattr(value, one.name) for one in fields(value) if one.compare)

"""Errors that keep their constructor's arguments, so that pickle and the result backends of Celery can rebuild them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature, signature
from typing import Any, ClassVar, Self


class RebuildableError(Exception):
    """An error whose `args` are its constructor's arguments, but for those that can only be given by name."""

    __signature__: ClassVar[Signature]

    def __init_subclass__(cls) -> None:
        """Show the constructor's parameters: `inspect` of some Pythons would show those of `__new__`."""
        _, *parameters = signature(cls.__init__).parameters.values()
        cls.__signature__ = Signature(parameters)

    def __new__(cls, *arguments: object, **named: object) -> Self:
        """Note the arguments, those given by name at their positions."""
        error = super().__new__(cls)
        parameters = [one for one in cls.__signature__.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        error.args = (*arguments, *(named.get(one.name, one.default) for one in parameters[len(arguments) :]))
        return error

    def __init__(self, message: str) -> None:
        """Create the error with one clear sentence."""
        self._message = message

    def __str__(self) -> str:
        return self._message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._message!r})"

    def __reduce__(self) -> tuple[Callable[..., RebuildableError], tuple[object, ...], dict[str, Any]]:
        """Support pickling and copying."""
        return _unpickled, (type(self), *self.args), vars(self)


def _unpickled(kind: type[RebuildableError], *arguments: object) -> RebuildableError:
    return kind.__new__(kind, *arguments)

"""The root of all errors, and the errors of unusable input and of stores and databases.

Errors keep their constructor's arguments, so that pickle and the result backends of Celery can rebuild them.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature, signature
from typing import Any, ClassVar, Final, Self


class _Rebuildable(Exception):
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

    def __reduce__(self) -> tuple[Callable[..., _Rebuildable], tuple[object, ...], dict[str, Any]]:
        """Support pickling and copying."""
        return _unpickled, (type(self), *self.args), vars(self)


def _unpickled(kind: type[_Rebuildable], *arguments: object) -> _Rebuildable:
    return kind.__new__(kind, *arguments)


FOREIGN: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of code that reads a value which another program may have written, without a check of its shape."""


class SegmentedError(_Rebuildable):
    """The operation failed.

    Cure: Catch it for every error of the library; the subclass and its message say what to do.
    """

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


class InvalidInput(SegmentedError, ValueError):
    """The input is not usable.

    Cure: Correct the value that the message names; nothing was changed.
    """


class StoreError(SegmentedError):
    """The store did not answer.

    Cure: Catch it for every failure of a server or database.
    """


class StoreUnavailable(StoreError):
    """The store cannot be reached; whether the operation ran is unknown.

    Cure: Repeat the call with the same id: it takes effect once.
    """


class StoreBusy(StoreUnavailable):
    """No connection to the store was free in time, so nothing was sent: allow more connections, or wait longer.

    Cure: Allow more connections or a longer wait, and repeat the call.
    """


class AcknowledgementUnknown(StoreUnavailable):
    """The pool has made the change, but too few replicas or disks acknowledged it in time: repeat the same id.

    Cure: Repeat the call with the same id.
    """

    def __init__(self, sku: str, order_id: str | None, wanted: int, counted: int, detail: str) -> None:
        what = f"the outcome of {'a change' if order_id is None else repr(order_id)} in pool {sku!r} is unknown"
        super().__init__(f"{what}: {detail}; repeat the call with the same id")
        self.sku, self.order_id, self.wanted, self.counted = sku, order_id, wanted, counted


class LockUnreachable(StoreUnavailable):
    """The lock could not be acquired because its store cannot be reached; the protected work has not begun.

    Cure: Try again later, or record the work: see [when Redis is down](how-to/when-redis-is-down.md).
    """

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.name = name


class StoreRefused(StoreError):
    """The store refused the operation; nothing changed.

    Cure: Correct the setting, right or memory limit that the message names, and repeat the call.
    """


class WrongKind(StoreRefused):
    """The key holds another type: another kind of lock, or something else, uses the name.

    Cure: Use another name for one of the two.
    """


class DatabaseUnavailable(StoreError):
    """The order database cannot be reached; whether the statement ran is unknown.

    Cure: Repeat the call with the same id.
    """


class TransactionConflict(StoreRefused):
    """The database rolled the transaction back because it conflicts with another: run it again from its start.

    Cure: Run the transaction again from its start.
    """

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"{what}: the transaction is rolled back, run it again from its start: {detail}")

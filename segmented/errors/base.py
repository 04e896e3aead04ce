"""The root of all errors, the error of unusable input, and Python's errors for what another program wrote."""

from __future__ import annotations

from typing import Final

from segmented import rebuildable

FOREIGN: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors of code that reads a value which another program may have written, without a check of its shape."""


class SegmentedError(rebuildable.RebuildableError):
    """The operation failed.

    Cure: Catch it for every error of the library; the subclass and its message say what to do.
    """

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


class InvalidInput(SegmentedError, ValueError):
    """The input is not usable.

    Cure: Correct the value that the message names; nothing was changed.
    """

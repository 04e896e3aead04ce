"""The root of all errors, and the error of unusable input."""

from __future__ import annotations

from segmented import rebuildable


class SegmentedError(rebuildable.RebuildableError):
    """The operation failed."""

    def __init__(self, message: str | None = None) -> None:
        """Create the error with one clear sentence, or the class docstring's first line."""
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


class InvalidInput(SegmentedError, ValueError):
    """The input is not usable."""

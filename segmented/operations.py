"""The old name of `segmented.protocol` before 0.2; the next release removes it."""

from __future__ import annotations

from typing import Any
from warnings import warn

from segmented import protocol


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any operation
    """Return the name from `segmented.protocol`, with a warning."""
    value = getattr(protocol, name)
    warn(f"segmented.operations.{name} is segmented.protocol.{name} now", DeprecationWarning, stacklevel=2)
    return value

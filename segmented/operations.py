"""The name that `segmented.protocol` had before 0.2; it goes with the next release."""

from __future__ import annotations

from typing import Any
from warnings import warn

from segmented import protocol


def __getattr__(name: str) -> Any:  # noqa: ANN401  # any operation
    """Give what `segmented.protocol` has, with a warning."""
    value = getattr(protocol, name)
    warn(f"segmented.operations.{name} is segmented.protocol.{name} now", DeprecationWarning, stacklevel=2)
    return value

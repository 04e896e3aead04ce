"""A dataclass for what a sale makes at each order: frozen for the type checker, and made in half of the time.

The standard library's frozen dataclass sets each field by a call. A process makes two or three instances an order, and
a thousand at once for a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def light_dataclass(*, frozen: bool = False, **options: bool) -> Any:  # noqa: ANN401  # as in the standard library
        """As `dataclasses.dataclass`, but while a program runs nothing keeps it from setting a field."""
        return dataclass(unsafe_hash=frozen, **options)

else:
    from dataclasses import dataclass as light_dataclass

__all__ = ["light_dataclass"]

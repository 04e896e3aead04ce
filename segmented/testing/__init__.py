"""Public helpers for tests: a clock that tests advance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import late

if TYPE_CHECKING:
    from segmented.clock import ManualClock as ManualClock

LATE: Final = {"ManualClock": "segmented.clock"}
"""The plugin, which each test run imports, does not need the clock."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)

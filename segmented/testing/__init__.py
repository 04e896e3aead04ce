"""Public helpers for tests: a clock that tests advance, and the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.clock import ManualClock
    from segmented.testing.simulator import Actor, Killed, Simulation, Sleep

__all__ = ["Actor", "Killed", "ManualClock", "Simulation", "Sleep"]

LATE: Final = from_modules(
    {
        "segmented.clock": "ManualClock",
        "segmented.testing.simulator": "Actor Killed Simulation Sleep",
    }
)
"""Where each lazily imported name comes from."""

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = late(__name__, LATE)

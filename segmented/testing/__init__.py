"""Public helpers for tests: a clock that is moved by hand, and the simulator."""

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
"""Imported when asked for, and from where."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)

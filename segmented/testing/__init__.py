"""Public helpers for tests: a clock that tests advance, and the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import from_modules, late

if TYPE_CHECKING:
    from segmented.clock import ManualClock as ManualClock
    from segmented.testing.simulator import Actor as Actor, Killed as Killed, Simulation as Simulation, Sleep as Sleep

LATE: Final = from_modules(
    {
        "segmented.clock": "ManualClock",
        "segmented.testing.simulator": "Actor Killed Simulation Sleep",
    }
)
"""Where each lazily imported name comes from."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)

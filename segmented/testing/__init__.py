"""Public helpers for tests: a clock that is moved by hand, and the simulator."""

from segmented.clock import ManualClock
from segmented.testing.simulator import Actor, Killed, Simulation, Sleep

__all__ = ["Actor", "Killed", "ManualClock", "Simulation", "Sleep"]

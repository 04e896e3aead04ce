"""Local time as an argument: monotonic, so that a change of the wall clock has no effect."""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Seconds that only grow, from an arbitrary zero."""

    def now(self) -> float:
        """Return monotonic seconds."""


_SUSPENDED_TOO = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""On macOS, CLOCK_MONOTONIC itself goes on while the machine sleeps."""


class SystemClock:
    """The machine's monotonic clock, which goes on while the machine is suspended, where the system has such a one.

    A lease lapses on its server while a laptop sleeps, so a clock that stands still would go on to trust it.
    """

    now = staticmethod(partial(time.clock_gettime, _SUSPENDED_TOO))  # read ten times per lock cycle: no method wraps it


class WallClock:
    """The machine's wall clock: seconds since 1970, which a correction may move either way.

    Only the historical `GetSetLock` depends on it.
    """

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()


class ManualClock:
    """A clock that moves only when `advance` is called, for tests and the simulator."""

    def __init__(self, start: float = 1_000.0) -> None:
        """Create a clock that starts at `start` seconds."""
        self._now = start

    def now(self) -> float:
        """Return the seconds reached so far."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward."""
        if seconds < 0:
            message = "a monotonic clock does not go back"
            raise ValueError(message)
        self._now += seconds

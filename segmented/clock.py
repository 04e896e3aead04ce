"""Local time as an argument: monotonic, so that a change of the wall clock has no effect."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that only grow, from an arbitrary zero."""

    def now(self) -> float:
        """Return monotonic seconds."""


class SystemClock:
    """The machine's monotonic clock."""

    now = staticmethod(time.monotonic)  # read ten times per lock cycle, so no method wraps it


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

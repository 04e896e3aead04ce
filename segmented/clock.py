"""Local time as an argument: monotonic, so that a change of the wall clock has no effect."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from math import inf
from typing import Protocol, TypeAlias, TypeVar

from segmented.errors import InvalidInput

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""
GivenT = TypeVar("GivenT")


def in_seconds(duration: GivenT | timedelta) -> GivenT | float:
    """Return the seconds of a timedelta, and anything else unchanged."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


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

    Only the historical `GetSetLock` depends on it; `segmented watch` prints it.
    """

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()


class ManualClock:
    """A clock that moves only when `advance` is called, for tests.

    With `auto`, a wait moves it to the wait's end at once, so that one thread or task can wait for a lease to expire.
    """

    def __init__(self, start: float = 1_000.0, *, auto: bool = False) -> None:
        """Create a clock that starts at `start` seconds; with `auto`, waits on a `MemoryStore` move it."""
        self._now = start
        self.is_auto = auto

    def __repr__(self) -> str:
        """Return the seconds reached so far, and whether waits move it."""
        return f"ManualClock({self._now:g}{', auto=True' if self.is_auto else ''})"

    def now(self) -> float:
        """Return the seconds reached so far."""
        return self._now

    def advance(self, seconds: Duration) -> None:
        """Move forward. Raises InvalidInput for a step back."""
        seconds = in_seconds(seconds)
        if seconds < 0:
            raise InvalidInput("a monotonic clock does not go back")
        self._now += seconds


class Stillness:
    """Notices a wait on a clock that nothing moves, which would never end."""

    def __init__(self, clock: Clock, deadline: float) -> None:
        """Begin a wait that ends at `deadline` by `clock`."""
        self._clock = clock
        self._began = clock.now()
        self._seconds = deadline - self._began
        self._real = SystemClock()
        self._really_began = self._real.now()

    def moved(self, until: float) -> bool:
        """Move a clock with `auto` to `until`, and return whether it did; for other clocks, check that they move.

        Raises InvalidInput if the whole wait has passed in real time and the clock stands where it stood.
        """
        now = self._clock.now()
        if isinstance(self._clock, ManualClock) and self._clock.is_auto and until < inf:
            self._clock.advance(max(0.0, until - now))
            return True
        if now == self._began and self._real.now() - self._really_began >= self._seconds:
            raise InvalidInput(
                f"a wait of {self._seconds:g} s does not end, because the store's clock does not move: create it as "
                "ManualClock(auto=True), or move it from another thread or task with clock.advance(seconds)"
            )
        return False


def checked_clock(clock: Clock | None) -> Clock:
    """Return the clock, or the system's if it is None. Raises InvalidInput for anything without a method `now`."""
    if clock is None:
        return SystemClock()
    if not callable(getattr(clock, "now", None)):
        what = "a function" if callable(clock) else type(clock).__name__
        message = f"a clock is an object with a method now(), such as ManualClock() of segmented.testing, not {what}"
        raise InvalidInput(message)
    return clock

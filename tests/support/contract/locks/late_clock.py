"""A clock by which a lease that was dropped ends soon, though it was taken for long."""

from typing import Final

from segmented.clock import SystemClock

LASTS: Final = 30.0
"""Seconds of a lease that does not end before it is dropped, on a machine that stands still."""
LEFT: Final = 0.7
"""Seconds of it that `LateClock.come_late` leaves: the keeper would renew it, and else it ends."""


class LateClock:
    """The system's clock, until a test lets most of a lease's life pass at once."""

    shift = 0.0

    def now(self) -> float:
        return SystemClock().now() + self.shift

    def come_late(self) -> None:
        """Go on to the last moments of a lease of LASTS."""
        self.shift += LASTS - LEFT

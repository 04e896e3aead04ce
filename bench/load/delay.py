"""The load generator's own delay, and whether it was too long for the figures of a sale to be used."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Final

import gevent
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.load.tally import Tally

LOOK_SECONDS: Final = 0.01
LATE_MAX: Final = 0.1
"""Maximum lateness as a share of the response time (open loop, p99) or of the hold (closed loop, median)."""
MILLISECONDS: Final = 1_000


class DelayMeter:
    """Wakes every 10 ms, and notes how much later that was than asked for.

    Buyers of a closed loop have no intended times, so their lateness cannot be seen in their calls. They wake in the
    same loop as this greenlet, after their holds and with their answers, and are as late.
    """

    def __init__(self) -> None:
        """Start to look."""
        self._late: array[float] = array("d")
        self._greenlet = gevent.spawn(self._look)

    def taken(self) -> NDArray[np.float64]:
        """Return the delays since the last call, in seconds."""
        late, self._late = self._late, array("d")
        return np.array(late)

    def stop(self) -> None:
        """Stop looking."""
        self._greenlet.kill()

    def _look(self) -> None:
        while True:
            due = time.monotonic() + LOOK_SECONDS
            gevent.sleep(LOOK_SECONDS)
            self._late.append(max(0.0, time.monotonic() - due))


def too_late(tally: Tally, *, is_open: bool, late_max: float) -> tuple[str, ...]:
    """Return why a sale has no figures: its load generator was late, so times and rate are partly its own."""
    percentile, compared = (99, "response") if is_open else (50, "hold")
    if not is_open and not tally.histograms["hold"].total_count:
        compared = "service"  # a strategy without a critical section
    late, other = (
        tally.histograms[name].get_value_at_percentile(percentile) / MILLISECONDS for name in ("lateness", compared)
    )
    if not tally.histograms[compared].total_count or late <= late_max * other:
        return ()
    name = "p99" if is_open else "median"
    found = f"the {name} lateness of the load generator is {late:.2f} ms, more than {late_max:.0%} of the {compared}'s"
    return (f"{found} {other:.2f} ms: use more processes, fewer buyers or a quieter machine",)

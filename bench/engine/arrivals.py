"""Schedules of arrivals for an open loop, generated from a seed before the sale begins. Pure functions.

A schedule is an ascending array of seconds from the beginning, all before the end. It does not depend on the progress
of the sale: that makes the loop open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.sizing import STOCK_MIN
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.engine.cell import Cell

BASE_SHARE: Final = 0.1
"""The rate before the spike and long after it, as a share of its height."""
RISE_SHARE: Final = 0.2
"""When the spike rises, as a share of the measured seconds."""
DECLINE_SHARE: Final = 0.2
"""The time in which the excess over the base falls to 1/e, as a share of the measured seconds."""


@dataclass(frozen=True, slots=True)
class Spike:
    """A flash sale: `base` arrivals per second, a jump to `height` at `at` seconds, then an exponential decline."""

    base: float
    height: float
    at: float
    decline: float
    """Seconds in which the excess over the base falls to 1/e."""

    def __post_init__(self) -> None:
        """Validate the spike. Raises InvalidInput."""
        if not 0 <= self.base <= self.height or self.at < 0 or self.decline <= 0:
            message = (
                f"a spike from {self.base:g} to {self.height:g} arrivals a second at {self.at:g} s, declining in "
                f"{self.decline:g} s, is none: 0 <= base <= height, at >= 0 and decline > 0 must hold"
            )
            raise InvalidInput(message)

    def rate(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return arrivals per second at these times."""
        above = (self.height - self.base) * np.exp(-np.maximum(at - self.at, 0.0) / self.decline)
        return np.where(at < self.at, self.base, self.base + above)

    def expected(self, seconds: float) -> float:
        """Return the expected number of arrivals in the first `seconds`."""
        after = max(0.0, seconds - self.at)
        above = (self.height - self.base) * self.decline * (1.0 - float(np.exp(-after / self.decline)))
        return self.base * seconds + above


def poisson(rate: float, seconds: float, *, seed: int) -> NDArray[np.float64]:
    """Return arrivals of a Poisson process: a random number of uniformly distributed times."""
    generator = np.random.default_rng(seed)
    return _scattered(generator, rate, seconds)


def spike(profile: Spike, seconds: float, *, seed: int) -> NDArray[np.float64]:
    """Return arrivals of a Poisson process whose rate follows the profile.

    By thinning (P. Lewis and G. Shedler, 1979): arrivals at the rate of the height, each kept with probability
    rate / height at its time.
    """
    generator = np.random.default_rng(seed)
    found = _scattered(generator, profile.height, seconds)
    return found[generator.random(len(found)) * profile.height < profile.rate(found)]


def _scattered(generator: np.random.Generator, rate: float, seconds: float) -> NDArray[np.float64]:
    found = np.sort(generator.random(generator.poisson(rate * seconds)) * seconds)
    return found[found < seconds]  # the product may round up to the end itself


def profile_of(cell: Cell, *, warm_up: float, seconds: float) -> Spike:
    """Return the spike of a cell: the base is a tenth of its height, and it rises a fifth into the measured seconds."""
    height = cell.offered_per_s or 0.0
    return Spike(height * BASE_SHARE, height, warm_up + RISE_SHARE * seconds, DECLINE_SHARE * seconds)


def schedule_of(cell: Cell, *, warm_up: float, seconds: float, seed: int) -> NDArray[np.float64]:
    """Return the intended times of an open cell's calls, from its warm-up to the end of the measured seconds.

    With batches an arrival is a call of `cell.batch` orders, so there are fewer arrivals.
    """
    if cell.offered_per_s is None:
        message = f"{cell.cell_id} is a closed loop, which has no schedule"
        raise InvalidInput(message)
    if cell.arrivals == "poisson":
        return poisson(cell.offered_per_s / cell.batch, warm_up + seconds, seed=seed)
    per_order = profile_of(cell, warm_up=warm_up, seconds=seconds)
    per_call = Spike(per_order.base / cell.batch, per_order.height / cell.batch, per_order.at, per_order.decline)
    return spike(per_call, warm_up + seconds, seed=seed)


def units_asked(cell: Cell, *, warm_up: float, seconds: float, seed: int) -> int:
    """Return a stock that a run with this seed cannot exhaust: the units that it orders."""
    calls = len(schedule_of(cell, warm_up=warm_up, seconds=seconds, seed=seed))
    return max(STOCK_MIN, calls * cell.batch * cell.quantity)

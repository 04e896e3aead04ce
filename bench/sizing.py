"""How large a sale must be, how fast it could be at best, and when it has taken too long. Pure arithmetic."""

from __future__ import annotations

from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WARM_UP_SHARE: Final = 0.1
WARM_UP_MAX: Final = 1.0
CALIBRATION_SECONDS: Final = 1.5
CALIBRATION_HOLDS: Final = 10
"""The calibration sale lasts so many holds at least: a mean of fewer says little."""
OVERTIME_FACTOR: Final = 1.5
OVERTIME_SECONDS: Final = 3.0
DRAIN_SECONDS: Final = 10.0
DRAIN_FACTOR: Final = 2
DRAIN_ORDER: Final = 0.01
"""Seconds that an order takes beside the extra hold, at worst."""
STOCK_MIN: Final = 20
"""A stock that sells out within fewer orders measures the start of a sale and nothing else."""


def bound_per_s(lanes: int, hold: float) -> float:
    """Orders a second if every lane worked on one order after the other without a pause; `hold` in seconds."""
    return lanes / hold


def rate_to_expect(calibrated: float, paces: Sequence[float]) -> float:
    """Return the rate, in orders a second, by which a cell is stocked: calibrated or its runs' median, the higher.

    After a slow moment, in one or the other, a sale would be over before it was measured; a longer one costs time only.
    """
    return max(calibrated, median(paces or [calibrated]))


def stock_for(bound: float, seconds: float) -> int:
    """Units that last for `seconds` at the bound, one unit an order."""
    return max(STOCK_MIN, ceil(bound * seconds))


def warm_up(seconds: float) -> float:
    """Seconds left out at the beginning of a sale of `seconds`."""
    return min(WARM_UP_MAX, WARM_UP_SHARE * seconds)


def calibration(extra_hold: float) -> float:
    """Seconds for the sale that measures the hold and is not counted."""
    return max(CALIBRATION_SECONDS, CALIBRATION_HOLDS * extra_hold)


def time_limit(seconds: float) -> float:
    """Seconds after which buyers stop, sold out or not."""
    return OVERTIME_FACTOR * seconds + OVERTIME_SECONDS


def drain(buyers: int, extra_hold: float) -> float:
    """Seconds after which buyers who were told to stop must have: all may stand in line for one lock."""
    return DRAIN_SECONDS + DRAIN_FACTOR * buyers * (extra_hold + DRAIN_ORDER)


def oversold(sold: int, stock: int) -> int:
    """Units sold beyond the stock."""
    return max(0, sold - stock)

"""The size of a sale, its upper bound, its time limits, and rounds in random order. Pure arithmetic."""

from __future__ import annotations

import random
from statistics import median
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ItemT = TypeVar("ItemT")

WARM_UP_SHARE: Final = 0.1
WARM_UP_MAX: Final = 1.0
CALIBRATION_SECONDS: Final = 1.5
CALIBRATION_HOLDS: Final = 10
"""Minimum length of the lone buyer's sale, in holds: a mean of fewer is too noisy."""
OVERTIME_FACTOR: Final = 1.5
OVERTIME_SECONDS: Final = 3.0
DRAIN_SECONDS: Final = 10.0
DRAIN_FACTOR: Final = 2
DRAIN_ORDER: Final = 0.01
"""Worst-case seconds of an order beside the extra hold."""
STOCK_MIN: Final = 20
"""Minimum stock: a smaller one would measure only the start of a sale."""


def bound_per_s(lanes: int, hold: float) -> float:
    """Orders per second if every lane always worked on one order; `hold` in seconds, of a lone buyer."""
    return lanes / hold


def rate_to_expect(calibrated: float, paces: Sequence[float]) -> float:
    """Return the rate, in orders per second, for the stock of a cell: the higher of calibration and median of runs.

    If one of them was measured in a slow moment, the sale would sell out too early; a longer sale only costs time.
    """
    return max(calibrated, median(paces or [calibrated]))


def warm_up(seconds: float) -> float:
    """Seconds left out at the beginning of a sale of `seconds`."""
    return min(WARM_UP_MAX, WARM_UP_SHARE * seconds)


def calibration(extra_hold: float) -> float:
    """Seconds of the calibration sale, which measures the hold and does not count."""
    return max(CALIBRATION_SECONDS, CALIBRATION_HOLDS * extra_hold)


def time_limit(seconds: float) -> float:
    """Seconds after which buyers stop, sold out or not."""
    return OVERTIME_FACTOR * seconds + OVERTIME_SECONDS


def drain(buyers: int, extra_hold: float) -> float:
    """Seconds for buyers to stop: all of them may be waiting for one lock."""
    return DRAIN_SECONDS + DRAIN_FACTOR * buyers * (extra_hold + DRAIN_ORDER)


def oversold(sold: int, stock: int) -> int:
    """Units sold beyond the stock."""
    return max(0, sold - stock)


def shuffled_rounds(items: Sequence[ItemT], rounds: int, *, seed: int = 1) -> Iterator[tuple[int, ItemT]]:
    """Yield each item once a round, in random order, with the number of the round: a slow moment meets all alike."""
    chance = random.Random(seed)
    for number in range(rounds):
        for item in chance.sample(items, len(items)):
            yield number, item

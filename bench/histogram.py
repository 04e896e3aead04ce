"""Percentiles from an HdrHistogram: three significant digits, from a microsecond to ten minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hdrh.histogram import HdrHistogram

from bench.record import Wait

if TYPE_CHECKING:
    from collections.abc import Iterable

LOWEST_US: Final = 1
HIGHEST_US: Final = 600_000_000
DIGITS: Final = 3


def waits(seconds: Iterable[float]) -> Wait:
    """Return percentiles in milliseconds; all 0 without samples."""
    histogram = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    for value in seconds:
        histogram.record_value(min(HIGHEST_US, max(LOWEST_US, round(value * 1_000_000))))
    if not histogram.get_total_count():
        return Wait(0.0, 0.0, 0.0)
    p50, p99, highest = (histogram.get_value_at_percentile(percentile) / 1_000 for percentile in (50, 99, 100))
    return Wait(p50, p99, highest)

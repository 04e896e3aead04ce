"""Percentiles from an HdrHistogram: three significant digits, a microsecond to ten minutes; merged, never averaged."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import numpy as np
from hdrh.codec import HdrCookieException, HdrLengthException
from hdrh.histogram import HdrHistogram

from bench.engine.record import Percentiles
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

LOWEST_US: Final = 1
HIGHEST_US: Final = 600_000_000
CAP_MS: Final = HIGHEST_US / 1_000
"""Response time of an order that was shed: it never had an answer."""
DIGITS: Final = 3
BEYOND_MIN: Final = 10
"""Minimum number of samples beyond a percentile for it to be reported."""
UNREADABLE: Final = (HdrCookieException, HdrLengthException, zlib.error, ValueError, TypeError, IndexError)
"""What HdrHistogram raises for an invalid text."""


def histogram_of(seconds: NDArray[np.float64]) -> HdrHistogram:
    """Return a histogram of microseconds."""
    found = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    clipped = np.clip(np.rint(seconds * 1_000_000), LOWEST_US, HIGHEST_US).astype(np.int64)
    for value, count in zip(*np.unique(clipped, return_counts=True), strict=True):
        found.record_value(int(value), int(count))
    return found


def percentiles_of(seconds: NDArray[np.float64]) -> Percentiles:
    """Return the record's percentiles of these times."""
    return described(histogram_of(seconds))


def p99_ms(seconds: NDArray[np.float64]) -> float:
    """Return the p99 in milliseconds, for any number of times: for comparison, not for publication.

    It is always one of the times, never interpolated, at the rank that HdrHistogram uses: the lint rules have only the
    histogram.
    """
    rank = max(1, int(0.99 * len(seconds) + 0.5))
    return float(np.sort(seconds)[rank - 1]) * 1_000


def at_ms(found: HdrHistogram, percent: float) -> float:
    """Return a percentile in milliseconds, however few samples there are; 0 without any."""
    return float(found.get_value_at_percentile(percent)) / 1_000 if found.get_total_count() else 0.0


def added(encoded: Iterable[str]) -> HdrHistogram:
    """Merge encoded histograms into one of all their samples."""
    found = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    for one in encoded:
        found.add(decoded(one))
    return found


def merged(encoded: Iterable[str]) -> Percentiles:
    """Merge encoded histograms: percentiles of all their samples together."""
    return described(added(encoded))


def decoded(encoded: str) -> HdrHistogram:
    """Decode a histogram. Raises InvalidInput for an invalid text."""
    try:
        return HdrHistogram.decode(encoded)
    except UNREADABLE as error:
        message = "a histogram of the results cannot be decoded; `segmented bench lint` names its run"
        raise InvalidInput(message) from error


def described(found: HdrHistogram) -> Percentiles:
    """Return the percentiles in milliseconds, each only with enough samples beyond it."""
    count = int(found.get_total_count())

    def at(percent: float) -> float | None:
        beyond = count * (100 - percent) / 100
        is_known = count > 0 and (percent <= 50 or beyond >= BEYOND_MIN - 1e-6)  # noqa: PLR2004  # the median always
        return at_ms(found, percent) if is_known else None

    mean, deviation = moments(found) if count else (None, 0.0)
    return Percentiles(
        n=count,
        p50=at(50),
        p90=at(90),
        p99=at(99),
        p999=at(99.9),
        p9999=at(99.99),
        max=found.get_max_value() / 1_000 if count else None,
        mean=None if mean is None else round(mean / 1_000, 6),
        cv=round(deviation / mean, 6) if mean else None,
        encoded=found.encode().decode("ascii"),
    )


def moments(found: HdrHistogram) -> tuple[float, float]:
    """Return mean and standard deviation in microseconds, with each value at the middle of its bin.

    The same figures as HdrHistogram's own, which walks all 21,504 bins twice; this uses only bins with samples.
    """
    counts = np.array(found.counts, dtype=np.float64)
    filled = np.flatnonzero(counts)
    low = [found.get_value_from_index(int(index)) for index in filled]
    middle = np.array(
        [one + ((found.get_highest_equivalent_value(one) - one + 1) >> 1) for one in low], dtype=np.float64
    )
    weights = counts[filled]
    mean = float(np.average(middle, weights=weights))
    return mean, float(np.sqrt(np.average((middle - mean) ** 2, weights=weights)))

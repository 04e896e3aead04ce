"""Confidence intervals of means and ratios over runs. A run is one observation, however many orders it had.

Bias-corrected and accelerated bootstrap (B. Efron, "Better bootstrap confidence intervals", JASA 82, 1987), by scipy.
It covers only the given runs: with ten runs the interval is slightly too narrow, and it does not include variation
between sessions (another day, another machine).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

LEVEL: Final = 0.95
RESAMPLES: Final = 4_999
RUNS_MIN: Final = 3
"""Minimum number of runs for an interval."""
SEED: Final = 20_260_101
"""Seed of the resampling: the same runs have the same interval."""

Method = Literal["BCa", "percentile", "all equal", "none"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % interval, over `n` runs (or rounds, for a paired ratio)."""

    value: float
    low: float | None
    high: float | None
    n: int
    method: Method

    @property
    def why_no_interval(self) -> str | None:
        """Why there is no interval; None if there is one."""
        return None if self.low is not None else f"{self.n} runs give no interval: it takes {RUNS_MIN}"

    @property
    def deviation(self) -> float | None:
        """Return the larger distance of a ratio's interval from 1, as a factor minus one; None without an interval."""
        if self.low is None or self.high is None or self.low <= 0:
            return None
        return max(1 / self.low, self.low, 1 / self.high, self.high) - 1

    def is_above(self, bound: float) -> bool | None:
        """Return whether the whole interval is above a bound; None if it contains the bound or does not exist."""
        if self.low is None or self.high is None:
            return None
        if self.low > bound:
            return True
        return False if self.high < bound else None

    def __str__(self) -> str:
        """Return it as text: `1,812 [1,804, 1,820]`, or `51,523` for an exact figure such as a count."""
        if self.low is None or self.high is None:
            return f"{number(self.value)} (n = {self.n}, no interval)"
        if self.low == self.high:
            return f"{self.value:,.0f}" if float(self.value).is_integer() else number(self.value)
        return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"


def number(value: float) -> str:
    """Format a figure with four digits: 12,340 or 48.5."""
    return f"{float(f'{value:.4g}'):,.10g}"


def mean_of(values: Sequence[float], *, resamples: int = RESAMPLES) -> Estimate:
    """Return the mean of runs; a slow run is part of the measurement. Raises ValueError without runs."""
    return _estimate([np.asarray(values, dtype=np.float64)], _mean, resamples)


def median_of(values: Sequence[float], *, resamples: int = RESAMPLES) -> Estimate:
    """Return the median of runs; its interval ends at runs' values. Raises ValueError without runs."""
    return _estimate([np.asarray(values, dtype=np.float64)], _median, resamples)


def paired_ratio(
    above: Mapping[int, float], below: Mapping[int, float], *, resamples: int = RESAMPLES
) -> Estimate | None:
    """Return the geometric mean of the ratios over common rounds; None if there are none.

    Only within one session: the runs of a round are close in time, so a slow machine affects both. Swapping the two
    gives exactly the reciprocal.
    """
    rounds = sorted(above.keys() & below.keys())
    if not rounds:
        return None
    logs = np.array([math.log(above[one] / below[one]) for one in rounds])
    found = _estimate([logs], _mean, resamples)
    low, high = (None if one is None else math.exp(one) for one in (found.low, found.high))
    return Estimate(math.exp(found.value), low, high, found.n, found.method)


def unpaired_ratio(above: Sequence[float], below: Sequence[float], *, resamples: int = RESAMPLES) -> Estimate | None:
    """Return the ratio of two means over runs of different sessions; None if one has no runs."""
    if not above or not below:
        return None
    samples = [np.asarray(one, dtype=np.float64) for one in (above, below)]
    return _estimate(samples, _ratio_of_means, resamples)


def _mean(one: Any, axis: int = -1) -> Any:  # noqa: ANN401  # arrays of whatever shape scipy sends
    return np.mean(one, axis=axis)


def _median(one: Any, axis: int = -1) -> Any:  # noqa: ANN401  # arrays of whatever shape scipy sends
    return np.median(one, axis=axis)


def _ratio_of_means(one: Any, other: Any, axis: int = -1) -> Any:  # noqa: ANN401  # arrays of whatever shape scipy sends
    return np.mean(one, axis=axis) / np.mean(other, axis=axis)


def _estimate(samples: Sequence[Numbers], statistic: Callable[..., Any], resamples: int) -> Estimate:
    n = min(len(one) for one in samples)
    if n == 0:
        message = "there is no run to estimate from"
        raise ValueError(message)
    value = float(statistic(*samples))
    if n < RUNS_MIN:
        return Estimate(value, None, None, n, "none")
    if all(np.ptp(one) == 0 for one in samples):
        return Estimate(value, value, value, n, "all equal")
    methods: tuple[Literal["BCa", "percentile"], ...] = ("BCa", "percentile")
    for method in methods:
        low, high = _interval(samples, statistic, method, resamples)
        if math.isfinite(low) and math.isfinite(high):
            return Estimate(value, low, high, n, method)
    return Estimate(value, None, None, n, "none")


def _interval(
    samples: Sequence[Numbers], statistic: Callable[..., Any], method: Literal["BCa", "percentile"], resamples: int
) -> tuple[float, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a degenerate bootstrap returns a value that is not finite
        found = stats.bootstrap(
            samples,
            statistic,
            n_resamples=resamples,
            confidence_level=LEVEL,
            method=method,
            vectorized=True,
            rng=np.random.default_rng(SEED),
        )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)

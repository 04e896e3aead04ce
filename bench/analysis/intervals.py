"""Confidence intervals over runs. A run is one observation, however many orders it had.

One method for every table, figure, verdict and comparison: Student's t (W. Gosset, "The Probable Error of a Mean",
Biometrika 6, 1908). Rates and ratios are positive and change by factors, so they are taken as logarithms: the value is
the geometric mean, a slow run counts as much as one that is as many times as fast, and the geometric mean of ratios is
the ratio of the geometric means. Two cells of a session are compared by their ratios within each round, since a slow
machine affects both; cells of two sessions have no common rounds, so B. Welch's t is used ("The Generalization of
Student's Problem", Biometrika 34, 1947). Shares and indexes, which may be 0, have the arithmetic mean.

The harmonic mean estimates something else: orders by seconds, if all runs are taken as one long sale of equal parts. It
is lower than the geometric mean by about half of the variance of the logarithms: 1 % if runs vary by 14 %.

An interval covers its value with 95 %. A decision that follows from several intervals passes their number as `family`:
each of them is then so much wider that all together are 95 % (Bonferroni's correction). The interval covers only the
given runs: it does not include variation between sessions (another day, another machine).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from scipy import special  # `scipy.stats` takes seconds to import

from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

LEVEL: Final = 0.95
RUNS_MIN: Final = 3
"""Minimum number of runs for an interval."""

Method = Literal["t", "order", "percentile", "with and without void runs", "all equal", "none"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its interval, over `n` runs (or rounds, for a paired ratio)."""

    value: float
    low: float | None
    high: float | None
    n: int
    method: Method

    @property
    def why_no_interval(self) -> str | None:
        """Why there is no interval; None if there is one."""
        return None if self.low is not None else f"{counted(self.n, 'run', 'gives')} no interval: it takes {RUNS_MIN}"

    @property
    def deviation(self) -> float | None:
        """Return the larger distance of a ratio's interval from 1, as a factor minus one; None without an interval."""
        if self.low is None or self.high is None or self.low <= 0:
            return None
        return max(1 / self.low, self.low, 1 / self.high, self.high) - 1

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


def rate_of(values: Sequence[float], *, family: int = 1) -> Estimate:
    """Return the geometric mean of runs' rates, all above 0. Raises ValueError without runs."""
    return _from_logs(_interval(np.log(_numbers(values)), family))


def mean_of(values: Sequence[float], *, family: int = 1) -> Estimate:
    """Return the arithmetic mean of shares or indexes. Raises ValueError without runs."""
    return _interval(_numbers(values), family)


def median_of(values: Sequence[float]) -> Estimate:
    """Return the median of runs. Its interval ends at two of the values, and needs six. Raises ValueError without runs.

    The number of values below the median is binomial, whatever their distribution (W. Thompson, Annals of Mathematical
    Statistics 7, 1936).
    """
    found = np.sort(_numbers(values))
    value, n = float(np.median(found)), len(found)
    below = next(k for k in range(n + 1) if special.bdtr(k, n, 0.5) >= (1 - LEVEL) / 2)
    if not below:
        return Estimate(value, None, None, n, "none")
    return Estimate(value, float(found[below - 1]), float(found[n - below]), n, "order")


def paired_ratio(above: Mapping[int, float], below: Mapping[int, float], *, family: int = 1) -> Estimate | None:
    """Return the geometric mean of the ratios over common rounds; None if there are none.

    Only within one session: the runs of a round are close in time, so a slow machine affects both. Swapping the two
    gives exactly the reciprocal.
    """
    rounds = sorted(above.keys() & below.keys())
    if not rounds:
        return None
    return _from_logs(_interval(np.array([math.log(above[one] / below[one]) for one in rounds]), family))


def unpaired_ratio(above: Sequence[float], below: Sequence[float], *, family: int = 1) -> Estimate | None:
    """Return the ratio of the geometric means of runs of different sessions; None if one has no runs."""
    if not above or not below:
        return None
    logs = [np.log(_numbers(one)) for one in (above, below)]
    value, n = float(logs[0].mean() - logs[1].mean()), min(len(above), len(below))
    if n < RUNS_MIN:
        return Estimate(math.exp(value), None, None, n, "none")
    each = [float(one.var(ddof=1)) / len(one) for one in logs]
    variance = sum(each)
    if variance == 0:
        return Estimate(math.exp(value), math.exp(value), math.exp(value), n, "all equal")
    free = variance**2 / sum(part**2 / (len(one) - 1) for part, one in zip(each, logs, strict=True))
    half = _quantile(free, family) * math.sqrt(variance)
    return _from_logs(Estimate(value, value - half, value + half, n, "t"))


def _numbers(values: Sequence[float]) -> Numbers:
    found = np.asarray(values, dtype=np.float64)
    if not len(found):
        raise ValueError("there is no run to estimate from")
    return found


def _interval(values: Numbers, family: int) -> Estimate:
    """Return the mean with Student's t."""
    value, n = float(values.mean()), len(values)
    if np.ptp(values) == 0:
        value = float(values[0])  # the mean of equal values may be rounded
        return (
            Estimate(value, value, value, n, "all equal") if n >= RUNS_MIN else Estimate(value, None, None, n, "none")
        )
    if n < RUNS_MIN:
        return Estimate(value, None, None, n, "none")
    half = _quantile(n - 1, family) * float(values.std(ddof=1)) / math.sqrt(n)
    return Estimate(value, value - half, value + half, n, "t")


@lru_cache(maxsize=1_024)
def _quantile(free: float, family: int) -> float:
    return float(special.stdtrit(free, 1 - (1 - LEVEL) / (2 * max(1, family))))


def _from_logs(found: Estimate) -> Estimate:
    low, high = (None if one is None else _exp(one) for one in (found.low, found.high))
    return Estimate(_exp(found.value), low, high, found.n, found.method)


def _exp(log: float) -> float:
    """Return e to this power; an interval that two or three runs leave open may be too wide for a number."""
    return math.exp(min(log, 700.0))

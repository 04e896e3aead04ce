"""The Universal Scalability Law: X(N) = g N / (1 + a (N - 1) + b N (N - 1)).

N. Gunther, "Guerrilla Capacity Planning", 2007: `g` is the rate of one client, `a` the share that queues for
shared resources, `b` the cost of coherence per pair; with b > 0 there is a peak at N* = sqrt((1 - a) / b). It describes
a curve without explaining it: several resources look like one, and a ceiling of K lanes has another shape.

Fitted by least squares of relative errors. Written as X (1 + a (N - 1) + b N (N - 1)) / (g N) = 1 the law is linear in
1/g, a/g and b/g, so the fit is exact and needs no first guess; none of the three may be below 0 (C. Lawson, R. Hanson,
"Solving Least Squares Problems", 1974, as scipy's nnls). Intervals: percentiles of fits to runs drawn with replacement
within each N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import nnls

from bench.analysis.intervals import LEVEL, RUNS_MIN, Estimate, rate_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

CLIENTS_MIN: Final = 6
"""Minimum number of different N for a fit."""
RESAMPLES: Final = 2_000
SEED: Final = 20_260_101
"""Seed of the resampling: the same runs have the same fit."""
RESIDUAL_MAX: Final = 0.10


@dataclass(frozen=True, slots=True)
class Law:
    """The three parameters."""

    gamma: float
    alpha: float
    beta: float

    def rate(self, clients: float) -> float:
        """Return X(N)."""
        return self.gamma * clients / (1 + self.alpha * (clients - 1) + self.beta * clients * (clients - 1))

    @property
    def peak(self) -> float | None:
        """Return N*, or None if X only grows or never grows."""
        return math.sqrt((1 - self.alpha) / self.beta) if self.beta > 0 and self.alpha < 1 else None


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted law, with 95 % intervals over runs."""

    law: Law
    gamma: Estimate
    alpha: Estimate
    beta: Estimate
    peak: Estimate
    residuals: tuple[float, ...]
    """By N: (mean of the runs - law) / law."""

    @property
    def largest_residual(self) -> float:
        """Return the largest absolute residual."""
        return max(abs(one) for one in self.residuals)

    @property
    def describes(self) -> bool:
        """Return whether every mean is within 10 % of the law; if not, the parameters are meaningless."""
        return self.largest_residual <= RESIDUAL_MAX


@dataclass(frozen=True, slots=True)
class NoFit:
    """The data does not determine a law."""

    why: str


def fit(rates: Mapping[int, Sequence[float]], *, resamples: int = RESAMPLES) -> Fit | NoFit:
    """Fit orders per second by N.

    There is no fit with fewer than six N, or without a visible peak, since b would be noise: the last N must be below
    the best one by more than their intervals, and the peak of the law within the data.
    """
    clients = sorted(number for number, found in rates.items() if found)
    if len(clients) < CLIENTS_MIN:
        return NoFit(f"{len(clients)} values of N; a fit takes {CLIENTS_MIN}")
    means = np.array([rate_of(rates[number]).value for number in clients])
    numbers = np.array(clients, dtype=np.float64)
    law = _fitted(numbers, means)
    best, last = rate_of(rates[clients[int(means.argmax())]]), rate_of(rates[clients[-1]])
    is_flat = (last.value if last.high is None else last.high) >= (best.value if best.low is None else best.low)
    if law is None or law.peak is None or is_flat:
        return NoFit(f"throughput does not fall up to N = {clients[-1]}, so the peak is unknown")
    if not clients[0] <= law.peak < clients[-1]:
        return NoFit(f"the peak would be at N = {law.peak:.0f}, outside of the data ({clients[0]} to {clients[-1]})")
    rng = np.random.default_rng(SEED)
    drawn = [_fitted(numbers, _redrawn(rates, clients, rng)) for _ in range(resamples)]
    laws = [one for one in drawn if one is not None]
    n = min(len(rates[number]) for number in clients)
    return Fit(
        law=law,
        gamma=_estimate(law.gamma, [one.gamma for one in laws], n),
        alpha=_estimate(law.alpha, [one.alpha for one in laws], n),
        beta=_estimate(law.beta, [one.beta for one in laws], n),
        peak=_estimate(law.peak, [math.inf if one.peak is None else one.peak for one in laws], n),
        residuals=tuple(float(mean / law.rate(number) - 1) for number, mean in zip(clients, means, strict=True)),
    )


def _fitted(clients: Numbers, rates: Numbers) -> Law | None:
    share = rates / clients
    columns = np.column_stack([share, share * (clients - 1), share * clients * (clients - 1)])
    scale = columns.max(axis=0)
    found, _ = nnls(columns / scale, np.ones(len(clients)))
    first, second, third = (float(one) for one in found / scale)
    return Law(1 / first, second / first, third / first) if first > 0 else None


def _redrawn(rates: Mapping[int, Sequence[float]], clients: Sequence[int], rng: np.random.Generator) -> Numbers:
    return np.array([np.exp(np.log(rng.choice(rates[number], size=len(rates[number]))).mean()) for number in clients])


def _estimate(value: float, drawn: Sequence[float], n: int) -> Estimate:
    if n < RUNS_MIN or not drawn:
        return Estimate(value, None, None, n, "none")
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(
        np.array(drawn), [tail, 1 - tail], method="inverted_cdf"
    )  # no interpolation: a peak may be infinite
    return Estimate(value, float(low), float(high), n, "percentile")

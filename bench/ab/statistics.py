"""The comparison of two builds, from rounds of four runs each: A B B A or B A A B.

The figure of a round is the mean log rate of its B runs minus that of its A runs. In both orders the two builds have
the same mean place, so a steady drift cancels. Declared before any measurement, two covariates are taken out by least
squares: the speed of a fixed loop before each run, and the share of the cores' time that the hypervisor gave to others
(covariance adjustment: R. A. Fisher, Statistical Methods for Research Workers, 4th edition, 1932). The interval is
Student's t.

The noise floor of a cell is the far end of the same interval for the two runs of the same build of each round, by the
same method: a difference within it is no difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from scipy import stats

from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

LEVEL: Final = 0.95
ROUNDS_MIN: Final = 6
"""Minimum number of rounds for an interval: two covariates leave three degrees of freedom."""
Verdict = Literal["slower", "faster", "no difference", "not judged"]


@dataclass(frozen=True, slots=True)
class Observed:
    """A run: its rate, and the state of the machine."""

    build: Literal["A", "B"]
    rate: float
    """Orders per second."""
    speed: float
    """Fixed loops per second, right before the run."""
    steal: float
    """Share of the cores' time during the run that the hypervisor gave to others."""


Round = tuple[Observed, Observed, Observed, Observed]
"""The runs of a round in the order in which they were made."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of rates with its interval, which is missing with too few rounds."""

    value: float
    low: float | None
    high: float | None

    @property
    def farthest(self) -> float | None:
        """The larger distance of the interval from 1, as a factor minus one."""
        if self.low is None or self.high is None:
            return None
        return max(self.high, 1 / self.low) - 1


@dataclass(frozen=True, slots=True)
class Compared:
    """A cell: B beside A."""

    rounds: int
    a_rate: float
    b_rate: float
    """Geometric means, orders per second."""
    ratio: Ratio
    """B / A, without the part that the covariates explain."""
    plain: float
    """B / A as it was measured."""
    floor: float | None
    verdict: Verdict
    why: str


def compare(rounds: Sequence[Round], *, cells: int = 1) -> Compared:
    """Compare two builds. With several `cells`, each interval is wider, so that all of them together are 95 %.

    (Bonferroni's correction.) Raises ValueError without a round.
    """
    if not rounds:
        message = "there is no round to compare"
        raise ValueError(message)
    level = 1 - (1 - LEVEL) / cells
    signs = [np.array([1.0 if run.build == "B" else -1.0 for run in one]) / 2 for one in rounds]
    logs = [np.log([run.rate for run in one]) for one in rounds]
    beside = [np.array([[math.log(run.speed), run.steal] for run in one]) for one in rounds]
    effect = np.array([sign @ log for sign, log in zip(signs, logs, strict=True)])
    moved = np.array([sign @ state for sign, state in zip(signs, beside, strict=True)])
    same = [_same_build(one) for one in rounds]
    again = np.array([sign @ log for sign, log in zip(same, logs, strict=True)])
    again_moved = np.array([sign @ state for sign, state in zip(same, beside, strict=True)])
    ratio = _ratio(effect, moved, level)
    floor = _ratio(again, again_moved, level).farthest
    verdict, why = _verdict(ratio, floor, len(rounds))
    return Compared(
        rounds=len(rounds),
        a_rate=_mean_rate(rounds, "A"),
        b_rate=_mean_rate(rounds, "B"),
        ratio=ratio,
        plain=math.exp(float(effect.mean())),
        floor=floor,
        verdict=verdict,
        why=why,
    )


def _same_build(one: Round) -> Numbers:
    """Return the signs that set the later run of each build against its earlier one, one build against the other.

    Any drift adds to both later runs, so it cancels as it does in the comparison of the builds.
    """
    seen: set[str] = set()
    signs = []
    for run in one:
        is_later = run.build in seen
        seen.add(run.build)
        signs.append((1.0 if is_later else -1.0) * (1.0 if run.build == "B" else -1.0))
    return np.array(signs) / 2


def _ratio(effect: Numbers, moved: Numbers, level: float) -> Ratio:
    """Return the effect where the covariates do not differ, as a ratio."""
    varying = moved[:, np.ptp(moved, axis=0) > 0] if len(effect) >= ROUNDS_MIN else moved[:, :0]
    design = np.column_stack([np.ones(len(effect)), varying])
    solved, _, rank, _ = np.linalg.lstsq(design, effect, rcond=None)
    value, free = float(solved[0]), len(effect) - int(rank)
    if len(effect) < ROUNDS_MIN or free < 1:
        return Ratio(math.exp(value), None, None)
    left = effect - design @ solved
    variance = float(left @ left) / free * float(np.linalg.pinv(design.T @ design)[0, 0])
    half = float(stats.t.ppf((1 + level) / 2, free)) * math.sqrt(variance)
    return Ratio(math.exp(value), math.exp(value - half), math.exp(value + half))


def _verdict(ratio: Ratio, floor: float | None, rounds: int) -> tuple[Verdict, str]:
    if ratio.low is None or ratio.high is None or floor is None:
        return "not judged", f"{counted(rounds, 'round', 'gives')} no interval: it takes {ROUNDS_MIN}"
    change = abs(ratio.value - 1)
    if ratio.low <= 1 <= ratio.high:
        return "no difference", "the interval has 1 in it"
    if max(ratio.value, 1 / ratio.value) - 1 <= floor:
        return "no difference", f"{change:.1%} is within the noise floor of {floor:.1%}"
    return ("faster" if ratio.value > 1 else "slower"), f"by {change:.1%}"


def _mean_rate(rounds: Sequence[Round], build: str) -> float:
    return math.exp(float(np.mean([math.log(run.rate) for one in rounds for run in one if run.build == build])))

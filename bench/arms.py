"""One lock against K segments, whatever drives the orders: the arms of the comparison, and its figures.

Locust's users and Celery's workers have the same figures. An arm's bound is min(K, orders at once) divided by the hold
of a lone order with one lock, which is measured before the rounds and therefore without any contention: the configured
hold and the steps around it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bench import sizing
from bench.analysis.intervals import paired_ratio, rate_of
from bench.figures import Figure, of_estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Rates = Mapping[int, float]
    """Orders per second, by round."""

SEGMENT_COUNTS: Final = (1, 4, 20, 64)


@dataclass(frozen=True, slots=True)
class Arm:
    """A number of segments, and the work under their locks."""

    segments: int
    hold_ms: float
    commits: bool = False
    """Whether the order's transaction commits under the lock too."""

    @property
    def name(self) -> str:
        """Name in the figures."""
        return f"{'one lock' if self.segments == 1 else f'{self.segments} segments'}, {self.work}"

    @property
    def work(self) -> str:
        """Name of the work under the lock."""
        return f"hold {self.hold_ms:g} ms{' and a commit' if self.commits else ''}"

    @property
    def one_lock(self) -> Arm:
        """The same work under one lock."""
        return replace(self, segments=1)

    def bound_per_s(self, lone: Mapping[Arm, float], at_once: int) -> float:
        """Return the bound: `lone` has the hold of a lone order in seconds, by arm with one lock."""
        return sizing.bound_per_s(min(self.segments, at_once), lone[self.one_lock])


def arm_figures(
    rates: Mapping[Arm, Rates],
    lone: Mapping[Arm, float],
    *,
    at_once: int,
    ceiling: Rates | None = None,
    asked: Mapping[str, float] | None = None,
) -> list[Figure]:
    """Compare each arm with one lock and with its bound, round by round, and give its rate and the lone holds.

    `ceiling`: rates that no arm can exceed, whatever its bound. `asked`: lower bounds, by name of the figure.
    """
    found, least = [], asked or {}
    for arm, kept in rates.items():
        ratio = paired_ratio(kept, rates.get(arm.one_lock, {}))
        if arm.segments > 1 and ratio is not None:
            name = f"{arm.name} / one lock"
            found.append(of_estimate(name, ratio, "", at_least=least.get(name)))
    for arm, kept in rates.items():
        if kept:
            bound = arm.bound_per_s(lone, at_once)
            shares = [rate / min(bound, (ceiling or {}).get(number, bound)) for number, rate in kept.items()]
            name = f"{arm.name} / its bound of {bound:,.0f}/s{' or the ceiling' if ceiling else ''}"
            found.append(of_estimate(name, rate_of(shares), "", at_least=least.get(arm.name)))
    found += [of_estimate(arm.name, rate_of(list(kept.values())), "/s") for arm, kept in rates.items() if kept]
    return found + [Figure(f"a lone order, {arm.work}: its hold", hold * 1e3, "ms") for arm, hold in lone.items()]


def cost_figures(costs: Mapping[Arm, Sequence[float]], whose: str) -> list[Figure]:
    """Return the CPU microseconds of an order."""
    return [
        of_estimate(f"{arm.name}: CPU of {whose}", rate_of(each), "us an order") for arm, each in costs.items() if each
    ]

"""The results of `torture rebuild`: durations, the latency of the other sale, and whether the books are exact."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench.results import Judged, show_end, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from bench.proof.rebuilds.neighbour import Sample
    from bench.proof.rebuilds.options import RebuildOptions

REBUILD_SECONDS_MAX: Final = 30.0
P99_RATIO_MAX: Final = 2.0
SAMPLES_MIN: Final = 1_000
"""Minimum number of orders for a p99 that is judged: ten are beyond it."""


@dataclass(frozen=True, slots=True)
class Round:
    """One rebuild, and the other sale before and during it."""

    began: float
    """Monotonic seconds."""
    ended: float
    steady_from: float
    samples: Sequence[Sample]

    @property
    def seconds(self) -> float:
        """Duration of the rebuild."""
        return self.ended - self.began

    @property
    def steady(self) -> list[float]:
        """Latencies of the orders that were confirmed before the rebuild began."""
        return [took for due, took in self.samples if due >= self.steady_from and due + took <= self.began]

    @property
    def during(self) -> list[float]:
        """Latencies of the orders that were under way at any time of the rebuild."""
        return [took for due, took in self.samples if due < self.ended and due + took > self.began]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildResults(Judged):
    """The results of a run."""

    options: RebuildOptions
    rounds: Sequence[Round]
    wrong: Sequence[str]
    """One sentence per number that is not exact."""
    conditions: dict[str, Any]

    @property
    def seconds_max(self) -> float:
        """Duration of the longest rebuild."""
        return max(one.seconds for one in self.rounds)

    @property
    def steady(self) -> list[float]:
        """Latencies of the other sale before all rebuilds."""
        return [took for one in self.rounds for took in one.steady]

    @property
    def during(self) -> list[float]:
        """Latencies of the other sale during all rebuilds."""
        return [took for one in self.rounds for took in one.during]

    @property
    def is_p99_judged(self) -> bool:
        """Return whether there are enough orders on both sides."""
        return min(len(self.steady), len(self.during)) >= SAMPLES_MIN

    @property
    def broken(self) -> list[str]:
        """Return one sentence per guarantee that did not hold."""
        found = list(self.wrong)
        if self.seconds_max >= REBUILD_SECONDS_MAX:
            found.append(f"a rebuild took {self.seconds_max:.1f} s, the bound is {REBUILD_SECONDS_MAX:g} s")
        if self.is_p99_judged and p99(self.during) >= P99_RATIO_MAX * p99(self.steady):
            found.append(
                f"the other sale's p99 was {p99(self.during):.2f} ms during rebuilds and {p99(self.steady):.2f} ms "
                f"before them, the bound is a ratio of {P99_RATIO_MAX:g}"
            )
        return found

    @property
    def figures(self) -> dict[str, Any]:
        """Return what was measured."""
        sale, steady, during = self.options.sale, self.steady, self.during
        return {
            "confirmed": sale.confirmed,
            "reserved": sale.reserved,
            "forgotten": len(sale.finished) + len(sale.cancelled) + sale.lost,
            "rebuilds": len(self.rounds),
            "seconds": [round(one.seconds, 3) for one in self.rounds],
            "seconds_median": round(median(one.seconds for one in self.rounds), 2),
            "seconds_max": round(self.seconds_max, 2),
            "others_steady": len(steady),
            "others_steady_p99_ms": round(p99(steady), 2),
            "others_during": len(during),
            "others_during_p99_ms": round(p99(during), 2),
            "others_p99_ratio": round(p99(during) / p99(steady), 2),
            "is_p99_judged": self.is_p99_judged,
        }

    def as_json(self) -> dict[str, Any]:
        """Return the content of the results file."""
        return {
            "benchmark": "torture-rebuild",
            "is_kept": self.is_kept,
            "broken": self.broken,
            "figures": self.figures,
            "conditions": self.conditions,
        }

    def show(self, console: Console) -> None:
        """Print a table on a terminal, or lines into a pipe."""
        show_rows(console, (), [(name.replace("_", " "), f"{value}") for name, value in self.figures.items()])
        few = f"Fewer than {SAMPLES_MIN:,} orders of the other sale: its p99 is not judged. Give more --rounds."
        show_end(console, self.broken, self.conditions, *(() if self.is_p99_judged else (few,)))


def p99(seconds: Sequence[float]) -> float:
    """Return the 99th percentile in milliseconds, by nearest rank; 0 without a value."""
    if not seconds:
        return 0.0
    return sorted(seconds)[max(0, -(-99 * len(seconds) // 100) - 1)] * 1_000

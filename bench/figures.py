"""The figures of a benchmark, value, bound and details, and its results: the figures with the conditions.

One lock against K segments, whatever drives the orders: Locust's users and Celery's workers have the same figures. An
arm's bound is min(K, orders at once) divided by the hold of a lone order with one lock, which is measured before the
rounds and therefore without any contention: the configured hold and the steps around it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench import sizing
from bench.analysis.intervals import paired_ratio, rate_of
from bench.results import described_conditions, say, show_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from bench.analysis.intervals import Estimate

    Rates = Mapping[int, float]
    """Orders per second, by round."""
    Edge = float | None
    Detail = dict[str, Any] | None

THOUSAND: Final = 999.5
"""From here on, three digits would be a power of ten."""
HEAD: Final = ("figure", "value", "95 % interval", "bound", "kept")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    """A 95 % bootstrap interval over the rounds, if there are several."""
    at_most: float | None = None
    """Upper bound, or None."""
    at_least: float | None = None
    """Lower bound, or None."""
    is_promise: bool = False
    """Whether the bound is a guarantee: a count, which does not depend on the machine's load. Otherwise it is a goal,
    which is shown as one and fails no run."""
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def is_within(self) -> bool:
        """Return whether the whole interval, or the value if it has none, is within the bounds."""
        return self._fits(self.value if self.low is None else self.low) and self._fits(
            self.value if self.high is None else self.high
        )

    @property
    def kept(self) -> str:
        """Return "yes", "no", or "unclear" if the value is within its bounds but a part of the interval is not."""
        return "yes" if self.is_within else "unclear" if self._fits(self.value) else "no"

    def _fits(self, value: float) -> bool:
        is_low_enough = self.at_most is None or value <= self.at_most
        return is_low_enough and (self.at_least is None or value >= self.at_least)

    def cells(self) -> list[str]:
        """Return the figure's row."""
        interval = "" if self.low is None or self.high is None else f"{written(self.low)} to {written(self.high)}"
        bound = "" if self.at_most is None else f"<= {self.at_most:g}"
        if self.at_least is not None:
            bound = f">= {self.at_least:g}"
        kept = self.kept if bound else ""
        if bound and not self.is_promise:
            bound = f"goal {bound}"
        return [self.name, f"{written(self.value)} {self.unit}".strip(), interval, bound, kept]


def written(value: float) -> str:
    """Return the number with three digits, or all digits before its point, and with separators."""
    return f"{value:,.0f}" if abs(value) >= THOUSAND else f"{value:,.3g}"


def of_rounds(
    name: str, values: Sequence[float], unit: str, *, at_most: Edge = None, at_least: Edge = None, detail: Detail = None
) -> Figure:
    """Return the median of the rounds, with the least and the most of them as its interval."""
    shown = {"interval": "least and most of the rounds", **(detail or {})}
    return Figure(name, median(values), unit, min(values), max(values), at_most, at_least, detail=shown)


def of_estimate(name: str, found: Estimate, unit: str, *, at_least: Edge = None, detail: Detail = None) -> Figure:
    """Return an estimate with its confidence interval and its number of rounds."""
    shown = {"rounds": found.n, **(detail or {})}
    return Figure(name, found.value, unit, found.low, found.high, at_least=at_least, detail=shown)


@dataclass(frozen=True, slots=True)
class FigureResults:
    """The results of a benchmark that consists of figures."""

    benchmark: str
    figures: tuple[Figure, ...]
    conditions: dict[str, Any]
    remarks: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Return whether every count is within its bound. Times depend on the machine's load and are only shown."""
        return all(figure.is_within for figure in self.figures if figure.is_promise)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the results file."""
        return {
            "benchmark": self.benchmark,
            "figures": [asdict(figure) | {"is_within": figure.is_within} for figure in self.figures],
            "conditions": self.conditions,
            "remarks": list(self.remarks),
        }

    def rows(self) -> list[list[str]]:
        """Return the table; the first row is the header."""
        return [list(HEAD), *(figure.cells() for figure in self.figures)]

    def show(self, console: Console) -> None:
        """Print a table on a terminal, or lines into a pipe."""
        show_rows(console, HEAD, [figure.cells() for figure in self.figures], line)
        say(console, *self.remarks, described_conditions(self.conditions))


def line(name: str, value: str, interval: str, bound: str, kept: str) -> str:
    """Return a figure's row as one line."""
    rest = "; ".join(part for part in (interval, bound, kept and f"kept: {kept}") if part)
    return f"{name}: {value}{f' ({rest})' if rest else ''}"


# --- arms ---

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

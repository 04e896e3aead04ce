"""R4, R5: histograms can be decoded and merged, and percentiles have enough samples beyond them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from bench.granularity.percentiles import BEYOND_MIN, DIGITS, LOWEST_US, decoded, described
from bench.lint.finding import broken, holds, named
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.granularity.record import Percentiles, Run
    from bench.lint.finding import Verdict
    from bench.lint.subject import Subject

RANGE_US: Final = 60_000_000
"""A histogram must reach at least a minute, in microseconds."""
TOLD: Final = {"p90": 10, "p99": 100, "p999": 1_000, "p9999": 10_000}
"""For each percentile: one sample in this many lies beyond it."""


def whole_histograms(subject: Subject) -> Verdict:
    """R4: every histogram decodes, has n samples and three digits, and gives the recorded percentiles."""
    count = 0
    for run in subject.runs:
        for name, told in _histograms(run):
            count += 1
            if reason := _not_whole(told):
                return broken(f"run {run.run} ({run.cell_id}): its histogram of {name} {reason}")
    if not count:
        return broken("there is no histogram")
    return holds(f"{count:,} histograms decode to the {DIGITS} digits, samples and percentiles that are told")


@cache
def _not_whole(told: Percentiles) -> str:
    try:
        found = decoded(told.encoded)
    except InvalidInput:
        return "cannot be decoded"
    if found.significant_figures != DIGITS or found.lowest_trackable_value > LOWEST_US:
        return f"does not have {DIGITS} digits from a microsecond on"
    if found.highest_trackable_value < RANGE_US:
        return "ends below a minute"
    again = described(found)
    if again.n != told.n:
        return f"has {again.n:,} samples, and {told.n:,} are told"
    wrong = [name for name in ("p50", *TOLD, "max") if _differ(getattr(again, name), getattr(told, name))]
    return f"gives another {', '.join(wrong)} than is told" if wrong else ""


def _differ(one: float | None, other: float | None) -> bool:
    """Return whether two percentiles differ; a missing one differs from none, since R5 checks that."""
    return one is not None and other is not None and one != other


def enough_samples(subject: Subject) -> Verdict:
    """R5: every percentile has its n, and none is reported with fewer than ten samples beyond it."""
    if not subject.runs:
        return broken("there is no run")
    wrong = [
        f"{name}.{told} of n = {found.n:,} in run {run.run} ({run.cell_id})"
        for run in subject.runs
        for name, found in _histograms(run)
        for told, one_in in TOLD.items()
        if getattr(found, told) is not None and found.n < BEYOND_MIN * one_in
    ]
    if wrong:
        return broken(f"told without ten samples beyond it: {named(wrong)}")
    most = max(found.n for run in subject.runs for _, found in _histograms(run))
    return holds(
        f"no percentile of {len(subject.runs)} runs has fewer than ten samples beyond it; n is {most:,} at most"
    )


def _histograms(run: Run) -> Iterator[tuple[str, Percentiles]]:
    times = run.times
    for name in ("service", "response", "wait", "hold", "lateness"):
        found = getattr(times, name)
        if found is not None:
            yield name, found

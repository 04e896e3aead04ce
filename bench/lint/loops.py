"""R1, R2, R3, R12: closed and open loops, and the measured part of a run.

R4, R5: histograms can be decoded and merged, and percentiles have enough samples beyond them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final

from bench.engine.percentiles import BEYOND_MIN, DIGITS, LOWEST_US, decoded, described
from bench.lint.subject import broken, holds, labels, named, not_applicable
from segmented.errors import InvalidInput
from segmented.models.ids import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.engine.record import Percentiles, Run
    from bench.lint.subject import Subject, Verdict

LATENESS_MAX: Final = 0.101
"""Maximum lateness as a share of the response time's p99: 10 %, plus rounding of histograms."""
SHED_MAX: Final = 0.001
WINDOW_TOLERANCE: Final = 0.01
"""Seconds by which the window may differ from the plan or the record: figures are rounded to milliseconds."""
RANGE_US: Final = 60_000_000
"""A histogram must reach at least a minute, in microseconds."""
STATED: Final = ("p50", "p90", "p99", "p999", "p9999", "max", "mean", "cv")
TOLD: Final = {"p90": 10, "p99": 100, "p999": 1_000, "p9999": 10_000}
"""For each percentile: one sample in this many lies beyond it."""


def one_loop_each(subject: Subject) -> Verdict:
    """R1: a run is closed or open, has only the times of its loop, and no sweep, hence no figure, has both."""
    if not subject.runs:
        return broken("there is no run")
    wrong = [
        run
        for run in subject.runs
        if run.cell.loop == "closed" and (run.times.response is not None or run.times.lateness is not None)
    ]
    if wrong:
        return broken(f"a closed loop has no intended times, but response times are given for {named(labels(wrong))}")
    loops: dict[str, set[str]] = defaultdict(set)
    for run in subject.runs:
        for sweep in run.sweeps:
            loops[sweep].add(run.cell.loop)
    mixed = sorted(sweep for sweep, found in loops.items() if len(found) > 1)
    if mixed:
        return broken(f"closed and open loops are in one sweep: {named(mixed)}")
    count = len(subject.open_runs)
    return holds(f"{counted(len(subject.runs) - count, 'run')} closed, {count} open, and no sweep has both")


def from_the_intended_time(subject: Subject) -> Verdict:
    """R2: open runs have both histograms, the response times also of shed orders, and no shorter than service times."""
    if not subject.open_runs:
        return not_applicable("no run has an open loop, so latency is not reported")
    lacking = [run for run in subject.open_runs if run.times.response is None]
    if lacking:
        return broken(f"no response time from the intended time on: {named(labels(lacking))}")
    wrong = [run for run in subject.open_runs if run.times.response and not _is_later(run, run.times.response)]
    if wrong:
        return broken(f"response and service times are not of the same orders: {named(labels(wrong))}")
    return holds(f"{len(subject.open_runs)} open runs have response and service times, each under its name")


def _is_later(run: Run, response: Percentiles) -> bool:
    service = run.times.service
    return response.n == service.n + run.times.shed and (response.max or 0.0) >= (service.max or 0.0)


def what_the_generator_missed(subject: Subject) -> Verdict:
    """R3: planned = sent + shed; a run with late orders, or with uncounted shed orders, is void."""
    if not subject.open_runs:
        return not_applicable("no run has an open loop, so nothing was meant to be sent at a time")
    lost = [run for run in subject.open_runs if run.counts.planned != run.counts.sent + run.counts.shed]
    if lost:
        return broken(f"planned is not sent + shed: {named(labels(lost))}")
    silent = [run for run in subject.open_runs if run.times.lateness is None]
    if silent:
        return broken(f"no lateness: {named(labels(silent))}")
    kept = [run for run in subject.open_runs if run.orders_per_s is not None]
    late = [run for run in kept if _is_late(run)]
    if late:
        return broken(
            f"orders left later than 10 % of the response p99, and the run is not void: {named(labels(late))}"
        )
    uncounted = [
        run for run in kept if run.counts.shed > SHED_MAX * run.counts.planned and run.counts.failed < run.counts.shed
    ]
    if uncounted:
        return broken(f"shed orders are not among the failures: {named(labels(uncounted))}")
    shed = sum(run.counts.shed for run in subject.open_runs)
    return holds(f"{len(subject.open_runs)} open runs: planned = sent + shed ({shed:,} shed), none late and kept")


def _is_late(run: Run) -> bool:
    return lateness_share(run) > LATENESS_MAX


def lateness_share(run: Run) -> float:
    """Return the p99 of the lateness of an open run as a share of its response's, without the shed orders."""
    late, response = run.times.lateness, run.times.response
    answered = 0.0 if response is None else _p99(response, run.times.shed)
    return _p99(late) / answered if late is not None and answered else 0.0


def _p99(found: Percentiles, shed: int = 0) -> float:
    """Return the p99 for any number of samples, without the shed orders at the end, for comparison only.

    R4 reports unreadable histograms.
    """
    try:
        answered = max(0, found.n - shed)
        return float(decoded(found.encoded).get_value_at_percentile(99 * answered / found.n)) if answered else 0.0
    except InvalidInput:
        return 0.0


def one_warm_up(subject: Subject) -> Verdict:
    """R12: the window begins after the warm-up, and the series shows the whole sale. R25 has the planned warm-up."""
    if not subject.measured:
        return broken("no run came to its end")
    wrong = [run for run in subject.measured if not _is_in_place(run)]
    if wrong:
        return broken(f"the window of the series is not the one that was measured: {named(labels(wrong))}")
    each = [run.warm_up_s for run in subject.measured]
    return holds(
        f"a warm-up of {min(each):g} to {max(each):g} s is left out of all {len(each)} runs, and the drain too"
    )


def _is_in_place(run: Run) -> bool:
    begin, end = run.series.window
    is_long_enough = len(run.series.offered) * run.series.bin_s >= begin
    return (
        abs(begin - run.warm_up_s) <= WINDOW_TOLERANCE
        and abs(end - begin - run.window_s) <= WINDOW_TOLERANCE
        and is_long_enough
    )


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
    return holds(f"{count:,} histograms decode to the {DIGITS} digits, samples and percentiles that are stated")


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
        return f"has {again.n:,} samples, but states {told.n:,}"
    wrong = [name for name in STATED if _differ(name, getattr(again, name), getattr(told, name))]
    return f"gives another {', '.join(wrong)} than is stated" if wrong else ""


def _differ(name: str, one: float | None, other: float | None) -> bool:
    """Return whether two figures differ. R5 checks percentiles that should not be there."""
    return one != other and not (one is None and name in TOLD)


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
        return broken(f"given without ten samples beyond it: {named(wrong)}")
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

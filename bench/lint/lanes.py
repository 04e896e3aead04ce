"""R17, R18: the evenness of segments and buyers, and the cost of an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.lint.finding import broken, holds, named, not_applicable
from bench.lint.subject import labels, without_redis

if TYPE_CHECKING:
    from bench.granularity.record import Fairness, Run
    from bench.lint.finding import Verdict
    from bench.lint.subject import Subject

JAIN_DIGITS: Final = 4
UNDER_A_LOCK: Final = frozenset({"one at a time", "one a segment"})


def evenness(subject: Subject) -> Verdict:
    """R17: runs have sales by segment, units left over time, and the Jain's index of each buyer's orders."""
    segmented = [run for run in subject.kept if run.guarantees.get("section") == "one a segment" and _segments(run) > 1]
    if not segmented:
        return not_applicable("no run with a throughput has more than one segment")
    blind = [run for run in segmented if not _shows_segments(run)]
    if blind:
        return broken(f"nothing by segment, or not of every segment: {named(labels(blind))}")
    closed = [run for run in subject.kept if run.cell.loop == "closed"]
    unfair = [run for run in closed if run.fairness is None or not _follows(run.fairness, run.cell.buyers)]
    if unfair:
        return broken(f"Jain's index is missing, or does not follow from the buyers' orders: {named(labels(unfair))}")
    worst = min((run.fairness.jain for run in closed if run.fairness), default=None)
    fairness = "" if worst is None else f", and {len(closed)} have fairness, the least {worst:g}"
    return holds(f"{len(segmented)} runs show every segment{fairness}")


def _segments(run: Run) -> int:
    return 1 if run.lanes == 1 and run.guarantees.get("section") == "one at a time" else run.cell.segments


def _shows_segments(run: Run) -> bool:
    series, count = run.series, run.cell.segments
    is_read = len(series.left) == len(series.left_at) > 0 and all(len(reading) == count for reading in series.left)
    return len(series.segment_sold) == count and is_read


def _follows(fairness: Fairness, buyers: int) -> bool:
    each = fairness.by_buyer
    squares = sum(one**2 for one in each)
    jain = round(sum(each) ** 2 / (len(each) * squares), JAIN_DIGITS) if squares else 0.0
    return len(each) == buyers and abs(jain - fairness.jain) <= 10**-JAIN_DIGITS


def work_done(subject: Subject) -> Verdict:
    """R18: runs have commands, round trips, bytes, server time, and lock requests if there is a lock."""
    sold = [run for run in subject.runs if run.counts.sold and not without_redis(run)]
    if not sold:
        return broken("no run has sold anything through Redis")
    blind = [run for run in sold if not _is_counted(run)]
    if blind:
        return broken(f"what an order cost is not counted: {named(labels(blind))}")
    most = max(sold, key=lambda run: run.work.commands)
    return holds(f"counted in {len(sold)} runs; {most.work.commands:g} commands an order at most, in {most.cell_id}")


def _is_counted(run: Run) -> bool:
    work = run.work
    asks = run.guarantees.get("section") not in UNDER_A_LOCK or work.attempts > 0
    return asks and min(work.commands, work.round_trips, work.bytes, work.server_us) > 0

"""R9, R10: a run that broke a guarantee has no throughput, and a throughput counts orders that hold stock.

R17, R18: the evenness of segments and buyers, and the cost of an order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.engine.checker import CLEAN
from bench.lint.subject import broken, holds, labels, named, not_applicable, without_redis
from segmented.models.ids import counted

if TYPE_CHECKING:
    from bench.engine.record import Fairness, Run
    from bench.lint.subject import Subject, Verdict

ROUNDED_S: Final = 0.0005
"""Maximum rounding error of a window in the file, in seconds."""
JAIN_DIGITS: Final = 4
UNDER_A_LOCK: Final = frozenset({"one at a time", "one a segment"})


def checked_to_the_unit(subject: Subject) -> Verdict:
    """R9: the checker's findings void a run; a kept run has sold everything ordered and in stock."""
    if not subject.runs:
        return broken("there is no run")
    praised = [run for run in subject.kept if run.void or _has_broken(run)]
    if praised:
        return broken(f"a throughput in spite of what the checker found: {named(labels(praised))}")
    silent = [run for run in subject.runs if run.orders_per_s is None and not run.void]
    if silent:
        return broken(f"no throughput, and no reason for it: {named(labels(silent))}")
    unsold = [run for run in subject.kept if _units_left(run)]
    if unsold:
        return broken(f"orders were refused while units are left: {named(labels(unsold))}")
    void = len(subject.runs) - len(subject.kept)
    runs = counted(len(subject.runs), "run", "is")
    return holds(f"{runs} checked, {void} of them void and without a throughput")


def _has_broken(run: Run) -> bool:
    found = run.checker
    counted = (found.oversold, found.refused_wrongly, found.stranded, found.duplicates, found.lost)
    return any(counted) or found.audit not in CLEAN or found.sold > found.stock


def _units_left(run: Run) -> bool:
    """Return whether orders were refused although units for an order were left at the end.

    Of several skus one may be sold out and another not; the checker has judged each of them.
    """
    free = run.checker.stock - run.checker.sold
    is_one = run.cell.case is None and run.cell.skus == 1
    return is_one and run.counts.sold_out > 0 and free >= run.cell.quantity


def goodput(subject: Subject) -> Verdict:
    """R10: the rate counts orders sold in the window; refused, failed, shed and cancelled orders are separate."""
    if not subject.kept:
        return broken("no run has a throughput")
    leaking = [run for run in subject.runs if not _adds_up(run)]
    if leaking:
        return broken(f"sold + sold out + failed is not what was planned: {named(labels(leaking))}")
    padded = [run for run in subject.kept if not _is_of_sold_orders(run)]
    if padded:
        return broken(f"the rate is not that of the orders sold in the window: {named(labels(padded))}")
    sold_out = sum(run.counts.sold_out for run in subject.runs)
    rates = counted(len(subject.kept), "rate", "is")
    return holds(f"{rates} of orders that hold stock; a series apart has the refusals: {sold_out:,}")


def _adds_up(run: Run) -> bool:
    counts, series = run.counts, run.series
    whole = counts.sold + counts.sold_out + counts.failed == counts.planned
    return whole and sum(series.sold) == counts.sold and sum(series.sold_out) == counts.sold_out


def _is_of_sold_orders(run: Run) -> bool:
    """Return whether the rate agrees with the bins of the series inside or touching the window."""
    begin, end = run.series.window
    length, rate = run.series.bin_s, run.orders_per_s or 0.0
    inside = touching = 0
    for index, sold in enumerate(run.series.sold):
        starts, ends = index * length, (index + 1) * length
        inside += sold if starts >= begin and ends <= end else 0
        touching += sold if ends >= begin and starts <= end else 0
    slack = 1 + rate * ROUNDED_S
    return inside - slack <= rate * run.window_s <= touching + slack


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
    fairness = (
        "" if worst is None else f", and {counted(len(closed), 'closed run', 'has')} fairness, the least {worst:g}"
    )
    unread = sum(run.cell.skus > 1 for run in segmented)
    over_time = f", {unread} of several skus without the units left over time" if unread else ""
    return holds(f"{counted(len(segmented), 'run', 'shows')} every segment{over_time}{fairness}")


def _segments(run: Run) -> int:
    return 1 if run.lanes == 1 and run.guarantees.get("section") == "one at a time" else run.cell.segments


def _shows_segments(run: Run) -> bool:
    series, count = run.series, run.cell.segments
    is_read = len(series.left) == len(series.left_at) > 0 and all(len(reading) == count for reading in series.left)
    return len(series.segment_sold) == count and (is_read or run.cell.skus > 1)  # many skus are not read


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
    return holds(
        f"counted in {counted(len(sold), 'run')}; {most.work.commands:g} commands an order at most, in {most.cell_id}"
    )


def _is_counted(run: Run) -> bool:
    work = run.work
    asks = run.guarantees.get("section") not in UNDER_A_LOCK or work.attempts > 0
    return asks and min(work.commands, work.round_trips, work.bytes, work.server_us) > 0

"""R26: what a run states follows from the rest of its record, and from its history where that is beside the file.

Figures that a run states twice must agree: the rate and each buyer's orders, the histograms and the counts, the verdict
and the checker's findings, the guarantees and the strategy's own. A call takes time, so all calls of a window together
take as long as its buyers had (J. Little, "A Proof for the Queuing Formula", 1961).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from bench.engine.checker import broken_promises, summed
from bench.engine.folder import PLAN
from bench.engine.plan import read_plan
from bench.engine.schedule import turns_of
from bench.engine.summary import LATE_SHARE, noted_of, too_short_of, unsold
from bench.lint.loops import lateness_share
from bench.lint.promises import UNDER_A_LOCK
from bench.lint.replayed import replayed
from bench.lint.subject import broken, holds, named, setting, without_redis
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.engine.record import Fairness, Run
    from bench.lint.subject import Subject, Verdict

ROUNDED: Final = 0.0006
"""Seconds, orders per second, milliseconds: a figure is rounded to thousandths."""
DIGITS: Final = 0.002
"""Share by which a value from a histogram of three digits may differ."""
LATE_TOLERANCE: Final = 0.01
SAMPLES_MIN: Final = 100
"""Two histograms of as many samples are never the same by chance."""
OF_THE_GENERATOR: Final = re.compile(r"the generator was late: p99 of the lateness is ")
CUT_SHORT: Final = re.compile(
    r"given up after \d+ orders without an answer|orders that had not ended when the run did: "
)
LOST: Final = "the run ended without a record: "
OLDER_WORDS: Final = (
    ("units that nobody can have", "units that no order can get"),
    ("oversold by 1 units", "oversold by 1 unit"),
)
"""Words in the results of sessions up to 28 November 2026."""
EVEN: Final = 0.9
"""Jain's index from which on no buyer waits for the whole window without an answer."""


def follows(subject: Subject) -> Verdict:
    """R26: every stated figure is the one that the record and the history give."""
    try:
        turns = turns_of(subject.grid(read_plan(subject.folder / PLAN)))
    except InvalidInput as error:
        return broken(f"the plan cannot be laid out again: {error}")
    seconds = {turn.number: turn.planned.seconds for turn in turns}
    for run in subject.runs:
        if wrong := next(_wrong(run, seconds.get(run.run, 0.0)), None):
            return broken(f"{wrong}: run {run.run} ({run.cell_id})")
    if wrong := next(_wrong_beside(subject), None):
        return broken(wrong)
    count = 0
    for run in subject.measured:
        try:
            found = replayed(run, subject.folder)
        except InvalidInput as error:
            return broken(str(error))
        if found is None:
            continue
        count += 1
        if found:
            return broken(f"the history gives another {found}: run {run.run} ({run.cell_id})")
    return holds(f"{len(subject.runs)} records agree with themselves, and {count} of them with their histories")


def _wrong(run: Run, seconds: float) -> Iterator[str]:
    """Yield what does not follow from the rest of the record."""
    strategy = STRATEGIES.get(run.cell.strategy)
    if strategy is not None and run.is_control != strategy.is_control:
        yield "a control is shown as a strategy, or the other way round"
    if bool(run.void) != (run.orders_per_s is None):
        yield "a void run has a throughput, or another has none"
    yield from _void(run, seconds)
    if run.window_s <= 0:
        return
    if strategy is not None:
        promised = asdict(strategy.guarantees)
        if run.cell.critical_section().commits:
            promised["durable"] = "commit"
        if run.guarantees != promised:
            yield "guarantees are not those of the strategy"
    if not 1 <= run.lanes <= run.cell.buyers:
        yield "lanes are not between one and the buyers"
    yield from _counts(run)
    yield from _window(run)
    if run.notes != (noted_of(run.counts.shed, run.counts.planned, run.cell.buyers) if run.cell.loop == "open" else ()):
        yield "the notes do not follow from the shed orders"


def _void(run: Run, seconds: float) -> Iterator[str]:
    """Yield whether the reasons for which a run is void follow from its record, none missing and none invented."""
    if run.window_s <= 0:
        if len(run.void) != 1 or not run.void[0].startswith(LOST):
            yield "a run without a window is not said to be lost"
        return
    counts, is_open = run.counts, run.cell.loop == "open"
    first = () if counts.first_failure is None else (counts.first_failure,)
    needed = {
        *broken_promises(run.checker, first, failed=0 if is_open else counts.failed),
        *(() if is_open else too_short_of(run.cell, run.window_s, seconds)),
    }
    if not _sold_in_window(run):
        needed.update(unsold(0))
    share = lateness_share(run) if is_open else 0.0
    is_late = any(OF_THE_GENERATOR.match(one) for one in run.void)
    if is_open and is_late != (share > LATE_SHARE) and abs(share / LATE_SHARE - 1) > LATE_TOLERANCE:
        yield "whether the generator was late does not follow from the histograms"
    said = set(run.void)
    for older, newer in OLDER_WORDS:
        said = {one.replace(older, newer) for one in said}
    if not needed <= said:
        yield "a reason is missing for which the run is void"
    may_be = (OF_THE_GENERATOR, CUT_SHORT) if is_open and (is_late or counts.failed > counts.shed) else ()
    more = [one for one in said if one not in needed and not any(each.match(one) for each in may_be)]
    if more and run.cell.case is None:
        yield "the record does not give the reason for which the run is void"


def _sold_in_window(run: Run) -> int:
    if run.fairness is not None:
        return sum(run.fairness.by_buyer)
    begin, end = run.series.window
    inside = [sold for place, sold in enumerate(run.series.sold) if begin <= (place + 1) * run.series.bin_s <= end + 1]
    return sum(inside)


def _counts(run: Run) -> Iterator[str]:
    counts, series, found, quantity = run.counts, run.series, run.checker, run.cell.quantity
    if sum(series.failed) + counts.shed != counts.failed or sum(series.offered) != counts.planned:
        yield "the series are not of the counted orders"
    if sum(series.shed) != counts.shed and series.shed:
        yield "the series of shed orders is not of their number"
    if sum(series.segment_sold) not in {0, counts.sold}:
        yield "orders by segment are not the sold ones"
    is_short = [before < after for before, after in pairwise(map(sum, series.left))]
    if series.left and (max(map(sum, series.left)) > found.stock or (any(is_short) and run.cell.case is None)):
        yield "units left by segment grow, or are more than the stock"
    if not run.is_control and found.sold != (counts.sold - counts.cancelled) * quantity:
        yield "the units sold are not those of the sold orders"
    if found.oversold < max(0, found.sold - found.stock):
        yield "more units are sold than there were, and fewer are said to be oversold"
    if len(run.skus) != (run.cell.skus if run.cell.skus > 1 else 0) or (run.skus and summed(run.skus) != found):
        yield "the books are not those of the skus together"
    if run.cell.case != "cancel-storm" and counts.cancelled:
        yield "orders are cancelled in a case that cancels none"


def _window(run: Run) -> Iterator[str]:
    times, window = run.times, run.window_s
    if run.times.shed > run.counts.shed or (run.times.shed and run.cell.loop == "closed"):
        yield "more orders are shed in the window than in the sale"
    if run.fairness is None:
        if times.lateness is not None and times.lateness.n * run.cell.batch != times.service.n:
            yield "lateness and service times are not of the same calls"
        if times.service.n > run.counts.sent:
            yield "more service times than orders"
        return
    sold = sum(run.fairness.by_buyer)
    slack = ROUNDED * (sold / window / window + 1) + 1e-6 * sold / window
    if run.orders_per_s is not None and abs(sold / window - run.orders_per_s) > slack:
        yield "the rate is not the buyers' orders by the window"
    others = run.sold_out_per_s + run.failed_per_s
    if abs(times.service.n - sold - others * window) > 1 + ROUNDED * (others + 2 * window):
        yield "service times are not of the orders answered in the window"
    if times.wait.n not in {0, sold} or times.hold.n > sold:
        yield "waits and holds are not of the orders sold in the window"
    longest = run.fairness.longest_wait_ms
    if abs(longest - (times.wait.max or 0.0)) > DIGITS * longest + ROUNDED * 2:
        yield "the longest wait is not that of the histogram"
    yield from _durations(run, run.fairness)


def _durations(run: Run, fairness: Fairness) -> Iterator[str]:
    times, window = run.times, run.window_s
    taken = times.service.n / run.cell.batch * (times.service.mean or 0.0) / 1_000
    edge = run.cell.buyers * ((times.service.max or 0.0) / 1_000 + 0.02 * window)
    least = run.cell.buyers * window if fairness.jain >= EVEN else 0.0
    if not least - edge <= taken <= run.cell.buyers * window + edge:
        yield "service times are longer or shorter together than the buyers' time in the window"
    held = times.hold.n * (times.hold.mean or 0.0) / 1_000
    is_locked = run.guarantees.get("section") in UNDER_A_LOCK and not without_redis(run)
    if is_locked and held > max(run.lanes, 1) * (window + (times.hold.max or 0.0) / 1_000) * 1.02:
        yield "the holds take longer together than the lanes were there"


def _wrong_beside(subject: Subject) -> Iterator[str]:
    """Yield what does not agree between runs: histograms used twice, lanes of a cell, and settings of the server."""
    seen: Counter[str] = Counter()
    for run in subject.runs:
        seen.update({one.encoded for one in (run.times.service, run.times.wait) if one.n >= SAMPLES_MIN})
    twice = [text for text, count in seen.items() if count > 1]
    if twice:
        of = [
            f"run {run.run}" for run in subject.runs if twice[0] in {run.times.service.encoded, run.times.wait.encoded}
        ]
        yield f"two runs have the same histogram: {named(of)}"
    histories = Counter(run.history_sha256 for run in subject.measured if run.history_sha256)
    if any(count > 1 for count in histories.values()):
        yield "two runs have the same history"
    lanes: dict[object, set[int]] = defaultdict(set)
    for run in subject.measured:
        lanes[setting(run.cell, ("offered_per_s",))].add(run.lanes)
    if any(len(found) > 1 for found in lanes.values()):
        yield "runs of a cell have different numbers of lanes"
    server = subject.results.session.condition("servers.redis")
    if isinstance(server, dict):
        config = {**server.get("config", {}), "name": server.get("name"), "version": server.get("version")}
        for run in subject.measured:
            other = [key for key, value in run.server.items() if str(config.get(key)) != value]
            if other:
                yield f"{', '.join(other)} of the server: run {run.run} states another than the environment"

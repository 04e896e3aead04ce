"""Checks a results file by computing it again: `segmented bench lint FILE`.

Six checks: the plan gives every run, each record agrees with itself, the histories give the records, the books void
the runs that broke a promise, the noise is known, and the conditions are stated. They measure nothing, and they
compare only what the file states with what else it states, so they do not judge whether a result is welcome.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.analysis.measured import without_redis
from bench.engine.cell import schedule_of
from bench.engine.checker import broken_promises, summed
from bench.engine.folder import CALIBRATIONS, ENVIRONMENT, PLAN, RESULTS, calls_of
from bench.engine.meters import saturated
from bench.engine.percentiles import DIGITS, LOWEST_US, decoded, described
from bench.engine.plan import grid_of, read_plan, stock_of, turns_of, wanted
from bench.engine.record import Percentiles, read_results
from bench.engine.sale import choice_of, opened_of
from bench.engine.servers import committed
from bench.engine.summary import LATE_SHARE, noted, too_short, unsold
from bench.results import say, show_rows
from bench.strategies import STRATEGIES
from segmented.errors import InvalidInput
from segmented.files import open_plain
from segmented.models.ids import counted, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from rich.console import Console

    from bench.engine.plan import Grid, LoadedPlan, Turn
    from bench.engine.record import ResultFile, Run

    Numbers = NDArray[np.float64]
    Check = Generator[str, None, str]
    """A check yields each fault that it finds; the first is reported. Without a fault it returns its evidence."""

NAMED_MAX: Final = 3
"""Maximum number of runs or cells that a sentence names; the others are counted."""
RUNS_MIN: Final = 10
TOLERANCE_S: Final = 0.01
"""Seconds by which times in the file may differ: they are rounded to milliseconds."""
ROUNDED: Final = 0.0006
EDGE_S: Final = 0.0011
"""Seconds around an end of the window in which a call may be inside or outside."""
SHARE: Final = 0.003
"""Share by which a time of a history, in microseconds, may differ from a histogram of three digits."""
RANGE_US: Final = 60_000_000
"""A histogram must reach at least a minute, in microseconds."""
TIMES: Final = ("service", "response", "wait", "hold", "lateness")
SAID_BEFORE: Final = ("hypotheses", "exclusions", "stop")
"""Required parts of a plan beside its sweeps."""
CONDITIONS: Final = (
    *("code.commit", "code.python", "code.versions", "machine.kernel", "machine.cpu_model", "machine.cores"),
    *("machine.governor", "machine.steal_percent", "disk.file_system", "disk.fdatasync_us"),
    *("servers.redis.version", "servers.redis.config", "placement"),
)
"""Required entries of the environment."""
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
LATE: Final = re.compile(r"the generator was late: p99 of the lateness is ")
CUT_SHORT: Final = re.compile(
    r"given up after \d+ orders without an answer|orders that had not ended when the run did: "
)
LOST: Final = "the run ended without a record: "
OLDER_WORDS: Final = (
    ("units that nobody can have", "units that no order can get"),
    ("oversold by 1 units", "oversold by 1 unit"),
)
"""Words in the results of sessions up to 28 November 2026."""
FIELDS: Final = ("intended", "asked", "granted", "freed", "done", "sold", "sold_out", "failed", "buyer", "first")


@dataclass(frozen=True, slots=True)
class Finding:
    """A check and its verdict."""

    check: str
    asks: str
    holds: bool
    evidence: str
    """One sentence, with runs or cells if something is wrong."""


@dataclass(frozen=True)
class Subject:
    """A results file, and the folder with its plan and histories."""

    results: ResultFile
    folder: Path

    @cached_property
    def measured(self) -> list[Run]:
        """Completed runs, kept or void; the others have no figures."""
        return [run for run in self.results.runs if run.window_s > 0]

    @cached_property
    def loaded(self) -> LoadedPlan:
        """The plan beside the results. Raises InvalidInput."""
        return read_plan(self.folder / PLAN)

    @cached_property
    def grid(self) -> Grid:
        """The part of the plan that the first line asks for. Raises InvalidInput."""
        session = self.results.session
        return grid_of(self.loaded, is_quick=session.is_quick, only=session.sweeps)

    @cached_property
    def turns(self) -> list[Turn]:
        """The runs of that part, in their order. Raises InvalidInput."""
        return turns_of(self.grid)

    def json(self, name: str) -> dict[str, Any]:
        """Return a file beside the results. Raises InvalidInput."""
        try:
            with open_plain(self.folder / name) as file:
                found: dict[str, Any] = json.loads(file.read().decode())
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{name}: {error}") from error
        return found


def lint_file(path: Path, console: Console) -> int:
    """Check a results file, or the one in a folder, and return the exit code: 0 if all checks hold, else 1.

    Raises InvalidInput for an invalid results file.
    """
    file = path / RESULTS if path.is_dir() else path
    findings = check(read_results(file), file.parent)
    rows = [(one.check, one.asks, "holds" if one.holds else "broken", one.evidence) for one in findings]
    show_rows(console, ("check", "asks for", "verdict", "evidence"), rows, "{}, {}: {}: {}".format)
    holding, end = sum(one.holds for one in findings), "be published" if may_publish(findings) else "not be published"
    say(console, f"{holding} of {counted(len(findings), 'check')} hold: a table of these results may {end}.")
    return 0 if may_publish(findings) else 1


def check(results: ResultFile, folder: Path) -> list[Finding]:
    """Return the verdict of each check, in order. `folder` has the file, its plan and its histories."""
    subject = Subject(results, folder)
    return [verdict(name, subject) for name in CHECKS]


def verdict(name: str, subject: Subject) -> Finding:
    """Return the verdict of one check."""
    asks, compute = CHECKS[name]
    steps = compute(subject)
    try:
        wrong = next(steps) if subject.measured else "no run came to its end"
    except StopIteration as end:
        return Finding(name, asks, holds=True, evidence=str(end.value))
    except InvalidInput as error:
        wrong = str(error)
    return Finding(name, asks, holds=False, evidence=wrong)


def may_publish(findings: Iterable[Finding]) -> bool:
    """Return whether every check holds: only then may the README show a table of these results."""
    return all(finding.holds for finding in findings)


# The plan


def _planned(subject: Subject) -> Check:
    """Lay the plan out again: cells, order and seeds of all runs, then the stock and the arrivals that follow."""
    session, end, turns = subject.results.session, subject.results.end, subject.turns
    loaded, rates = subject.loaded, {str(name): float(rate) for name, rate in subject.json(CALIBRATIONS).items()}
    if loaded.sha256 != session.plan_sha256 or loaded.plan.model_dump(mode="json", by_alias=True) != session.plan:
        yield f"the plan in the first line is not that of {PLAN}"
    if unsaid := [key for key in SAID_BEFORE if not session.plan.get(key)]:
        yield f"the plan says nothing of {', '.join(unsaid)}"
    if end is None or (end.runs_planned, end.runs_done) != (len(turns), len(subject.results.runs)):
        yield f"the last line does not say that {len(turns)} runs were planned and {len(subject.results.runs)} done"
    if session.left_out != subject.grid.left_out:
        yield "the file leaves out another part of the plan than its profile does"
    if rates.keys() != set().union(*(wanted(one) for one in subject.grid.cells)):
        yield f"{CALIBRATIONS} is not of the cells that the plan calibrates"
    if [run.run for run in subject.results.runs] != [turn.number for turn in turns]:
        yield f"{len(turns)} runs are planned; these are not the {len(subject.results.runs)} of the file, in order"
    pairs = list(zip(subject.results.runs, turns, strict=True))
    if others := [run for run, turn in pairs if not _is_of(run, turn, rates)]:
        yield f"another cell, round, arm, seed, sweep, load or warm-up than planned: {_named(map(_label, others))}"
    if others := _of_another_size(pairs, rates):
        what = "stock or arrivals do not follow from seed, calibration and earlier runs"
        yield f"{what}: {_named(map(_label, others))}"
    yield from _in_time(subject)
    return f"{len(pairs)} runs are those of the plan; its commit is older than they are"


def _is_of(run: Run, turn: Turn, rates: dict[str, float]) -> bool:
    planned = turn.planned
    capacity = 1.0 if planned.capacity is None else rates[planned.capacity.cell_id]
    asked = (turn.round, turn.arm, turn.seed, planned.sweeps, planned.percent)
    same = (run.round, run.arm, run.seed, run.sweeps, run.offered_percent) == asked
    warm_up = 0.0 if run.cell.stock is not None else planned.warm_up  # a fixed stock counts from its first order on
    is_warm = run.window_s == 0 or abs(run.warm_up_s - warm_up) <= TOLERANCE_S
    return same and is_warm and run.cell == planned.at(capacity) and run.cell_id == run.cell.cell_id


def _of_another_size(pairs: list[tuple[Run, Turn]], rates: dict[str, float]) -> list[Run]:
    paces: dict[str, list[float]] = defaultdict(list)
    found = []
    for run, turn in pairs:
        if run.window_s > 0:
            stock = stock_of(turn.planned, run.cell, turn.seed, calibrated=rates, paces=paces[run.cell_id])
            opened = opened_of(run.cell, stock)
            is_stocked = run.checker.stock == (stock if run.cell.case == "restock" else opened)
            shares = choice_of(run.cell, run.seed).shares(opened, run.cell.quantity) if run.cell.skus > 1 else ()
            is_shared = tuple(one.stock for one in run.skus) == shares  # what the first orders of the seed ask for
            if not (is_stocked and is_shared) or run.counts.planned != _arrivals(run, turn):
                found.append(run)
        paces[run.cell_id] += [run.pace] if run.pace else []
    return found


def _arrivals(run: Run, turn: Turn) -> int:
    if run.cell.loop == "closed":
        return run.counts.sent
    planned = turn.planned
    calls = schedule_of(run.cell, warm_up=planned.warm_up, seconds=planned.seconds, seed=turn.seed)
    return len(calls) * run.cell.batch


def _in_time(subject: Subject) -> Iterator[str]:
    """Check that runs follow one another, and that plan and code were committed before the first."""
    session = subject.results.session
    began = datetime.fromisoformat(session.started_at)
    times = [(run, datetime.fromisoformat(run.started_at)) for run in subject.results.runs]
    late = [
        run
        for (run, at), (_, after) in pairwise(times)
        if (after - at).total_seconds() < run.warm_up_s + run.window_s + run.drain_s
    ]
    if times[0][1] < began:
        late.insert(0, times[0][0])
    if late:
        yield f"began before the session, or lasted into the next: {_named(map(_label, late))}"
    for name, commit in (("plan", session.plan_commit), ("code", session.condition("code.commit"))):
        if not COMMIT.fullmatch(str(commit)):
            yield f"no commit of the {name}: {commit}"
        found = committed(str(commit))
        if found is None:
            yield f"git does not know {str(commit)[:12]}, the commit of the {name}"
        elif found.at > began:
            yield f"the {name} was committed after the session had begun"
        elif name == "plan" and hashlib.sha256(subject.loaded.text.encode()).hexdigest() not in found.sums:
            yield f"the commit {str(commit)[:12]} did not write this plan"


# The records


def _records(subject: Subject) -> Check:
    """Compare the figures that a run states twice: rates, counts, series, histograms, and each buyer's orders."""
    for run in subject.measured:
        for wrong in _wrong(run):
            yield f"{wrong}: {_label(run)}"
    return f"{len(subject.measured)} records agree with themselves"


def _wrong(run: Run) -> Iterator[str]:
    """Yield what does not follow from the rest of the record."""
    counts, series, times, is_open = run.counts, run.series, run.times, run.cell.loop == "open"
    for name in TIMES:
        told = getattr(times, name)
        if told is not None and (reason := _not_whole(told)):
            yield f"the histogram of {name} {reason}"
    if (times.response is None, times.lateness is None) != ((not is_open,) * 2):
        yield "response times and lateness are those of an open loop, and each open run has them"
    elif times.response and times.response.n != times.service.n + times.shed:
        yield "response and service times are not of the same orders"
    yield from _counts(run)
    begin, end = series.window
    if abs(begin - run.warm_up_s) > TOLERANCE_S or abs(end - begin - run.window_s) > TOLERANCE_S:
        yield "the window of the series is not the one that was measured"
    if run.notes != (noted(counts.shed, counts.planned, run.cell.buyers) if is_open else ()):
        yield "the notes do not follow from the shed orders"
    yield from _rate(run)
    if run.fairness is not None:
        yield from _fairness(run, run.fairness.by_buyer)


def _counts(run: Run) -> Iterator[str]:
    counts, series = run.counts, run.series
    if counts.sold + counts.sold_out + counts.failed != counts.planned or counts.planned != counts.sent + counts.shed:
        yield "sold + sold out + failed, or sent + shed, is not what was planned"
    if (sum(series.sold), sum(series.sold_out), sum(series.offered)) != (counts.sold, counts.sold_out, counts.planned):
        yield "the series are not of the counted orders"
    if sum(series.failed) + counts.shed != counts.failed or sum(series.segment_sold) not in {0, counts.sold}:
        yield "failed orders, or those by segment, are not the counted ones"


def _rate(run: Run) -> Iterator[str]:
    """Yield whether the rate is not that of the orders in the bins inside or touching the window."""
    if run.orders_per_s is None:
        return
    begin, end = run.series.window
    bins = [(place * run.series.bin_s, sold) for place, sold in enumerate(run.series.sold)]
    inside = sum(sold for at, sold in bins if at >= begin and at + run.series.bin_s <= end)
    touching = sum(sold for at, sold in bins if at + run.series.bin_s >= begin and at <= end)
    slack = 1 + run.orders_per_s * ROUNDED
    if not inside - slack <= run.orders_per_s * run.window_s <= touching + slack:
        yield "the rate is not that of the orders sold in the window"


def _fairness(run: Run, each: list[int]) -> Iterator[str]:
    sold, squares, window = sum(each), sum(one**2 for one in each), run.window_s
    jain = sold**2 / (len(each) * squares) if squares else 0.0
    if len(each) != run.cell.buyers or (run.fairness and abs(jain - run.fairness.jain) > SHARE / 10):
        yield "Jain's index does not follow from the buyers' orders"
    slack = ROUNDED * (sold / window / window + 1) + 1e-6 * sold / window
    if run.orders_per_s is not None and abs(sold / window - run.orders_per_s) > slack:
        yield "the rate is not the buyers' orders by the window"
    others = run.sold_out_per_s + run.failed_per_s
    if abs(run.times.service.n - sold - others * window) > 1 + ROUNDED * (others + 2 * window):
        yield "service times are not of the orders answered in the window"


@cache
def _not_whole(told: Percentiles) -> str:
    """Return what is wrong with a histogram: it must decode, to the figures that are stated, with enough samples."""
    try:
        found = decoded(told.encoded)
    except InvalidInput:
        return "cannot be decoded"
    if found.significant_figures != DIGITS or found.lowest_trackable_value > LOWEST_US:
        return f"does not have {DIGITS} digits from a microsecond on"
    if found.highest_trackable_value < RANGE_US:
        return "ends below a minute"
    again = described(found)
    wrong = [
        name for name in Percentiles.model_fields if name != "encoded" and getattr(again, name) != getattr(told, name)
    ]
    return f"gives another {', '.join(wrong)} than is stated" if wrong else ""


# The histories


def _replayed(subject: Subject) -> Check:
    """Count the calls again of each run whose history is beside the file; of each cell there must be one."""
    there: list[Run] = []
    sums = Counter(run.history_sha256 for run in subject.measured)
    for run in subject.measured:
        if run.history is None or run.history_sha256 is None or sums[run.history_sha256] > 1:
            yield f"no history of its own was kept: {_label(run)}"
            continue
        try:
            with open_plain(subject.folder / run.history) as history:
                digest = hashlib.file_digest(history, "sha256").hexdigest()
        except OSError:
            continue
        there.append(run)
        if digest != run.history_sha256:
            yield f"the history is not the one that was written: {_label(run)}"
        if wrong := replayed(run, subject.folder):
            yield f"the history gives another {wrong}: {_label(run)}"
    if without := sorted({run.cell_id for run in subject.measured} - {run.cell_id for run in there}):
        yield f"no history of a run is beside the results: {_named(without)}"
    return f"{len(there)} of {len(subject.measured)} histories are there, and give the records"


def replayed(run: Run, folder: Path) -> str:
    """Return which figure of a run its history contradicts, an empty text for none.

    Raises InvalidInput for a history that cannot be read.
    """
    calls = calls_of(folder, run, FIELDS)
    if calls is None:
        return ""
    sold, sold_out, failed = (int(calls[name].sum()) for name in ("sold", "sold_out", "failed"))
    if (sold, sold_out) != (run.counts.sold, run.counts.sold_out) or failed + run.counts.shed > run.counts.failed:
        return "number of sold, refused or failed orders"
    if run.skus and _sold_by_sku(run, calls) != [one.sold for one in run.skus]:
        return "number of units sold of each sku"
    begin, end = run.series.window
    done = calls["done"]
    surely = (done >= begin + EDGE_S) & (done <= end - EDGE_S)
    maybe = (done >= begin - EDGE_S) & (done <= end + EDGE_S)
    rate, slack = run.orders_per_s, 1 + (run.orders_per_s or 0.0) * EDGE_S
    least, most = calls["sold"][surely].sum() - slack, calls["sold"][maybe].sum() + slack
    if rate is not None and not least <= rate * run.window_s <= most:
        return "rate"
    if run.fairness is not None and not _is_between(calls, surely, maybe, run.fairness.by_buyer):
        return "number of orders by buyer"
    if run.cell.case is None and not run.skus and _refused_early(run, calls) > run.checker.refused_wrongly:
        return "number of refusals while units were free"
    if run.cell.loop == "open":  # an order counts where it was intended, not where it was answered
        at = calls["intended"]
        surely = (at >= begin + EDGE_S) & (at <= end - EDGE_S)
        maybe = (at >= begin - EDGE_S) & (at <= end + EDGE_S)
    return _times(run, calls, surely, maybe)


def _refused_early(run: Run, calls: dict[str, Numbers]) -> int:
    """Return how many refusals surely came while units were free: calls begun until then got fewer than there were."""
    order = np.argsort(calls["asked"])
    taken = np.concatenate([[0], np.cumsum((calls["sold"] + calls["failed"])[order])]) * run.cell.quantity
    until = np.searchsorted(calls["asked"][order], calls["done"][calls["sold_out"] > 0], side="right")
    return int((taken[until] + run.cell.quantity <= run.checker.stock).sum())


def _times(run: Run, calls: dict[str, Numbers], surely: NDArray[np.bool_], maybe: NDArray[np.bool_]) -> str:
    orders = calls["sold"] + calls["sold_out"] + calls["failed"]
    granted = (calls["sold"] > 0) & ~np.isnan(calls["granted"])
    held = granted & ~np.isnan(calls["freed"])
    each: tuple[tuple[str, Percentiles, Numbers, NDArray[np.bool_], Numbers], ...] = (
        ("service", run.times.service, calls["done"] - calls["asked"], orders > 0, orders),
        ("wait", run.times.wait, calls["granted"] - calls["asked"], granted, calls["sold"]),
        ("hold", run.times.hold, calls["freed"] - calls["granted"], held, np.ones(len(orders))),
    )
    for name, told, took, counts, weights in each:
        least, most = (int(weights[one & counts].sum()) for one in (surely, maybe))
        if not least <= told.n <= most:
            return f"number of {name} times"
        found = took[maybe & counts]
        if told.max is not None and told.max > float(found.max()) * 1_000 * (1 + SHARE) + SHARE:
            return f"longest {name} time"
        sample = np.repeat(found, weights[maybe & counts].astype(int)) * 1_000
        if told.p50 is None or not len(sample):
            continue
        unsure = min(0.5, 0.02 + (most - least + float(weights.max())) / len(sample))
        low, high = np.quantile(sample, [0.5 - unsure, 0.5 + unsure], method="inverted_cdf")
        if not low * (1 - SHARE) - SHARE <= told.p50 <= high * (1 + SHARE) + SHARE:
            return f"median {name} time ({low:.3f} to {high:.3f} ms)"
    return ""


def _sold_by_sku(run: Run, calls: dict[str, Numbers]) -> list[int]:
    choice = choice_of(run.cell, run.seed)
    skus = [choice.of(int(first)) for first in calls["first"]]
    sold = np.bincount(skus, weights=calls["sold"], minlength=run.cell.skus)
    return [int(orders) * run.cell.quantity for orders in sold]


def _is_between(
    calls: dict[str, Numbers], inside: NDArray[np.bool_], answered: NDArray[np.bool_], each: list[int]
) -> bool:
    least, most = (
        np.bincount(calls["buyer"][one].astype(int), weights=calls["sold"][one], minlength=len(each))
        for one in (inside, answered)
    )
    return len(least) == len(each) and bool(np.all(least <= each) and np.all(each <= most))


# The books


def _books(subject: Subject) -> Check:
    """Derive from the checker's findings which runs are void, and why: no more of them and no fewer."""
    seconds = {turn.number: turn.planned.seconds for turn in subject.turns}
    for run in subject.results.runs:
        for wrong in _misjudged(run, seconds.get(run.run, 0.0)):
            yield f"{wrong}: {_label(run)}"
    void = sum(run.orders_per_s is None for run in subject.results.runs)
    return f"{counted(len(subject.results.runs), 'run')} checked, {void} of them void and without a throughput"


def _misjudged(run: Run, seconds: float) -> Iterator[str]:
    counts, found, quantity, is_open = run.counts, run.checker, run.cell.quantity, run.cell.loop == "open"
    if bool(run.void) != (run.orders_per_s is None):
        yield "a void run has a throughput, or another has none"
    if run.window_s <= 0:
        if len(run.void) != 1 or not run.void[0].startswith(LOST):
            yield "a run without a window is not said to be lost"
        return
    if found.oversold < max(0, found.sold - found.stock):
        yield "more units are sold than there were, and fewer are said to be oversold"
    if not run.is_control and found.sold != (counts.sold - counts.cancelled) * quantity:
        yield "the units sold are not those of the sold orders"
    if len(run.skus) != (run.cell.skus if run.cell.skus > 1 else 0) or (run.skus and summed(run.skus) != found):
        yield "the books are not those of the skus together"
    is_plain = run.orders_per_s is not None and run.cell.case is None and run.cell.skus == 1
    if is_plain and counts.sold_out and found.stock - found.sold >= quantity:
        yield "orders were refused while units are left"
    yield from _reasons(run, seconds, is_open=is_open)


def _reasons(run: Run, seconds: float, *, is_open: bool) -> Iterator[str]:
    """Yield whether a reason for which the run is void is missing, or invented."""
    counts, found = run.counts, run.checker
    first = () if counts.first_failure is None else (counts.first_failure,)
    (begin, end), bin_s = run.series.window, run.series.bin_s
    bins = [sold for place, sold in enumerate(run.series.sold, 1) if begin <= place * bin_s <= end + 1]
    needed = {
        *broken_promises(found, first, failed=0 if is_open else counts.failed),
        *(() if is_open else too_short(run.cell, run.window_s, seconds)),
        *unsold(sum(run.fairness.by_buyer if run.fairness else bins)),
    }
    is_late = any(LATE.match(one) for one in run.void)
    share = _lateness(run) if is_open else 0.0
    if is_open and is_late != (share > LATE_SHARE) and abs(share / LATE_SHARE - 1) > TOLERANCE_S:
        yield "whether the generator was late does not follow from the histograms"
    said = set(run.void)
    for older, newer in OLDER_WORDS:
        said = {one.replace(older, newer) for one in said}
    may_be = (LATE, CUT_SHORT) if is_open and (is_late or counts.failed > counts.shed) else ()
    more = [one for one in said - needed if not any(each.match(one) for each in may_be)]
    if not needed <= said or (more and run.cell.case is None):
        yield "the reasons for which the run is void do not follow from its record"


def _lateness(run: Run) -> float:
    """Return the p99 of the lateness of an open run as a share of its response's, without the shed orders."""
    late, response = run.times.lateness, run.times.response
    if late is None or response is None or not (answered := max(0, response.n - run.times.shed)):
        return 0.0
    p99 = decoded(response.encoded).get_value_at_percentile(99 * answered / response.n)
    return float(decoded(late.encoded).get_value_at_percentile(99)) / p99 if p99 and late.n else 0.0


# The noise floor and the conditions


def _floor(subject: Subject) -> Check:
    """Require ten runs of each cell, and a cell that ran twice a round, as A and as B, with as many throughputs."""
    arms = Counter((run.cell_id, run.arm) for run in subject.results.runs)
    (cell_id, arm), least = min(arms.items(), key=lambda one: one[1])
    if least < RUNS_MIN:
        yield f"fewer than {RUNS_MIN} runs of {cell_id} ({arm}): {least}"
    kept = Counter((run.cell_id, run.arm) for run in subject.results.runs if run.orders_per_s is not None)
    again = sorted(cell_id for cell_id, arm in arms if arm == "B")
    if not again:
        yield "no cell was measured twice a round, as A and as B"
    if uneven := [cell_id for cell_id in again if kept[cell_id, "A"] != kept[cell_id, "B"]]:
        yield f"A and B do not have the same number of throughputs: {_named(uneven)}"
    pairs = sum(kept[cell_id, "B"] for cell_id in again)
    return f"{least} runs a cell or more; {counted(pairs, 'pair')} of A and B in {_named(again)}"


def _conditions(subject: Subject) -> Check:
    """Require one commit and one server setting in all runs; what was saturated follows from the cores."""
    session = subject.results.session
    if lacking := [key for key in CONDITIONS if session.condition(key) is None]:
        yield f"the environment says nothing of {', '.join(lacking)}"
    if subject.json(ENVIRONMENT) != session.environment:
        yield f"the environment in the first line is not that of {ENVIRONMENT}"
    commit, cores = str(session.condition("code.commit")), int(str(session.condition("machine.cores")))
    if commit.endswith("-dirty"):
        yield f"the code is of no commit: {commit}"
    redis = dict(session.environment["servers"]["redis"])
    stated = {**redis.get("config", {}), "name": redis.get("name"), "version": redis.get("version")}
    for run in subject.measured:
        if other := sorted(key for key, value in run.server.items() if str(stated.get(key)) != value):
            yield f"{', '.join(other)} of the server is another than the environment's: {_label(run)}"
        strategy = STRATEGIES.get(run.cell.strategy)
        if strategy is not None:
            commits = {"durable": "commit"} if run.cell.critical_section().commits else {}
            if run.guarantees != asdict(strategy.guarantees) | commits or run.is_control != strategy.is_control:
                yield f"the guarantees are not those of the strategy: {_label(run)}"
        if run.cpu.generator <= 0 or (run.counts.sold and not without_redis(run) and not _is_counted(run)):
            yield f"CPU time, or what an order cost, is not counted: {_label(run)}"
        if run.saturated != saturated(run.cpu, cores=cores, server_cores=run.server_cores, is_delayed=run.cell.proxied):
            yield f"what is marked as saturated does not follow from the cores used: {_label(run)}"
    hollow = sum(bool(run.saturated) for run in subject.measured)
    marked = f"{hollow} {plural(hollow, 'was')} limited by its cores"
    return f"commit {commit[:12]}, {len(CONDITIONS)} conditions, one server setting; {marked} and marked"


def _is_counted(run: Run) -> bool:
    work = run.work
    is_locked = run.guarantees.get("section") in {"one at a time", "one a segment"}
    return (work.attempts > 0 or not is_locked) and min(work.commands, work.round_trips, work.bytes, run.cpu.redis) > 0


CHECKS: Final[dict[str, tuple[str, Callable[[Subject], Check]]]] = {
    "plan": ("every run is the planned one", _planned),
    "records": ("every figure follows from its record", _records),
    "histories": ("every record follows from its history", _replayed),
    "books": ("a run that broke a promise has no rate", _books),
    "floor": ("repeated, and the noise is known", _floor),
    "conditions": ("the same on all sides, and stated", _conditions),
}


def _label(run: Run) -> str:
    return f"run {run.run} ({run.cell_id})"


def _named(found: Iterable[object]) -> str:
    each = [str(one) for one in found]
    rest = len(each) - NAMED_MAX
    return ", ".join(each[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")

"""R25: the plan is laid out again, and every run is compared with the one that it should be.

The plan beside the results gives the cells, the order of all runs and their seeds; the first line names the sweeps, if
not all were asked for. A seed gives the arrivals of an open loop; the calibrations and the earlier runs of a cell give
the stock of a closed one. Git gives the dates of the commits that the file names. So no run can be left out, added,
moved, replaced or given another seed without a trace.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from bench.engine.arrivals import schedule_of
from bench.engine.cases import opened_of
from bench.engine.environment import committed
from bench.engine.folder import CALIBRATIONS, ENVIRONMENT, PLAN
from bench.engine.plan import read_plan
from bench.engine.schedule import turns_of, wanted
from bench.engine.skus import choice_of
from bench.engine.stocks import stock_of
from bench.lint.subject import broken, holds, labels, named
from segmented.errors import InvalidInput
from segmented.files import open_plain

if TYPE_CHECKING:
    from bench.engine.plan import LoadedPlan
    from bench.engine.record import Run
    from bench.engine.schedule import Turn
    from bench.lint.subject import Subject, Verdict

COMMIT: Final = re.compile(r"[0-9a-f]{40}")
WARM_UP_TOLERANCE: Final = 0.01
"""Seconds by which a warm-up may differ from the plan's: figures are rounded to milliseconds."""


def as_planned(subject: Subject) -> Verdict:
    """R25: every run is the one that plan, seed, calibrations and earlier runs give, at its place and its time."""
    session = subject.results.session
    try:
        loaded = read_plan(subject.folder / PLAN)
        grid = subject.grid(loaded)
        rates = {str(name): float(rate) for name, rate in _json(subject, CALIBRATIONS).items()}
        environment = _json(subject, ENVIRONMENT)
    except (InvalidInput, ValueError, TypeError, AttributeError) as error:
        return broken(f"the plan cannot be laid out again: {error}")
    if loaded.sha256 != session.plan_sha256 or loaded.plan.model_dump(mode="json", by_alias=True) != session.plan:
        return broken(f"the plan in the first line is not that of {PLAN}")
    if environment != session.environment:
        return broken(f"the environment in the first line is not that of {ENVIRONMENT}")
    turns = turns_of(grid)
    end = subject.results.end
    if end is None or (end.runs_planned, end.runs_done) != (len(turns), len(subject.runs)):
        return broken(f"the last line does not say that {len(turns)} runs were planned and {len(subject.runs)} done")
    if session.left_out != grid.left_out:
        return broken("the file leaves out another part of the plan than its profile does")
    if rates.keys() != set().union(*(wanted(one) for one in grid.cells)):
        return broken(f"{CALIBRATIONS} is not of the cells that the plan calibrates")
    if [run.run for run in subject.runs] != [turn.number for turn in turns]:
        return broken(f"{len(turns)} runs are planned; these are not the {len(subject.runs)} of the file, in order")
    pairs = list(zip(subject.runs, turns, strict=True))
    moved = [run for run, turn in pairs if not _is_of(run, turn, rates)]
    if moved:
        return broken(f"another cell, round, arm, seed, sweep, load or warm-up than planned: {named(labels(moved))}")
    other = _of_another_size(pairs, rates)
    if other:
        return broken(
            f"stock or arrivals do not follow from seed, calibration and earlier runs: {named(labels(other))}"
        )
    return _in_time(subject, loaded, pairs)


def _json(subject: Subject, name: str) -> dict[str, Any]:
    try:
        with open_plain(subject.folder / name) as file:
            found: dict[str, Any] = json.loads(file.read().decode())
    except OSError as error:
        message = f"{name}: {error.strerror}"
        raise InvalidInput(message) from error
    return found


def _is_of(run: Run, turn: Turn, rates: dict[str, float]) -> bool:
    planned = turn.planned
    capacity = 1.0 if planned.capacity is None else rates[planned.capacity.cell_id]
    same = (run.round, run.arm, run.seed, run.sweeps, run.offered_percent) == (
        turn.round,
        turn.arm,
        turn.seed,
        planned.sweeps,
        planned.percent,
    )
    warm_up = 0.0 if run.cell.stock is not None else planned.warm_up  # a fixed stock counts from its first order on
    is_warm = run.window_s == 0 or abs(run.warm_up_s - warm_up) <= WARM_UP_TOLERANCE
    return same and is_warm and run.cell == planned.at(capacity) and run.cell_id == run.cell.cell_id


def _of_another_size(pairs: list[tuple[Run, Turn]], rates: dict[str, float]) -> list[Run]:
    """Return runs with another stock, or another number of arrivals, than their seed and the earlier runs give."""
    paces: dict[str, list[float]] = defaultdict(list)
    found = []
    for run, turn in pairs:
        if run.window_s > 0:
            stock = stock_of(turn.planned, run.cell, turn.seed, calibrated=rates, paces=paces[run.cell_id])
            opened = opened_of(run.cell, stock)
            is_restocked = run.cell.case == "restock"
            is_as_planned = run.checker.stock == (stock if is_restocked else opened) and _is_shared_out(run, opened)
            if not is_as_planned or run.counts.planned != _arrivals(run, turn):
                found.append(run)
        if run.pace:
            paces[run.cell_id].append(run.pace)
    return found


def _is_shared_out(run: Run, opened: int) -> bool:
    """Return whether each sku had the units that the first orders of the seed ask for."""
    shares = choice_of(run.cell, run.seed).shares(opened, run.cell.quantity) if run.cell.skus > 1 else ()
    return tuple(one.stock for one in run.skus) == shares


def _arrivals(run: Run, turn: Turn) -> int:
    """Return the orders that were to be sent: in an open loop those of the seed's schedule, else those that were."""
    if run.cell.loop == "closed":
        return run.counts.sent
    planned = turn.planned
    calls = schedule_of(run.cell, warm_up=planned.warm_up, seconds=planned.seconds, seed=turn.seed)
    return len(calls) * run.cell.batch


def _in_time(subject: Subject, loaded: LoadedPlan, pairs: list[tuple[Run, Turn]]) -> Verdict:
    """Return whether runs follow one another in time, and the commits were made before the first."""
    session, end = subject.results.session, subject.results.end
    began = datetime.fromisoformat(session.started_at)
    times = [(run, datetime.fromisoformat(run.started_at)) for run in subject.runs]
    late = [
        run
        for (run, at), (_, after) in pairwise(times)
        if (after - at).total_seconds() < run.warm_up_s + run.window_s + run.drain_s
    ]
    last, last_at = times[-1]
    if end is not None and (datetime.fromisoformat(end.finished_at) - last_at).total_seconds() < last.window_s - 1:
        late.append(last)
    if late or times[0][1] < began:
        return broken(f"began before the session, or lasted beyond the next run's beginning: {named(labels(late))}")
    asked = {
        "plan": str(session.plan_commit),
        "code": str(session.condition("code.commit")),
    }
    wrong = [name for name, commit in asked.items() if not COMMIT.fullmatch(commit)]
    if wrong:
        return broken(f"no commit of the {' and of the '.join(wrong)}")
    dates = {name: committed(commit) for name, commit in asked.items()}
    if None in dates.values():
        unknown = [asked[name][:12] for name, date in dates.items() if date is None]
        return broken(f"git does not know {named(unknown)}")
    after = [name for name, date in dates.items() if date is not None and date.at > began]
    if after:
        return broken(f"committed after the session had begun: {named(after)}")
    plan = dates["plan"]
    if plan is not None and hashlib.sha256(loaded.text.encode()).hexdigest() not in plan.sums:
        return broken(f"the commit {asked['plan'][:12]} did not write this plan")
    return holds(f"{len(pairs)} runs are those of the plan; its commit is older than they are")

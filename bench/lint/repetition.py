"""R11, R20, R21: runs are repeated and planned beforehand, and the noise floor is known.

R19: the session's conditions, and unchanged histories of calls, of each cell one at least.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from bench.lint.subject import broken, holds, labels, named
from segmented.files import open_plain
from segmented.models.ids import counted, plural

if TYPE_CHECKING:
    from pathlib import Path

    from bench.lint.subject import Subject, Verdict

RUNS_MIN: Final = 10
SAID_BEFORE: Final = ("hypotheses", "exclusions", "stop")
"""Required parts of a plan beside its sweeps."""
PLAN: Final = "plan.toml"
CONDITIONS: Final = (
    "code.commit",
    "code.python",
    "code.versions",
    "machine.kernel",
    "machine.cpu_model",
    "machine.cores",
    "machine.governor",
    "machine.steal_percent",
    "disk.file_system",
    "disk.fdatasync_us",
    "servers.redis.version",
    "servers.redis.config",
    "placement",
)
"""Required entries of the environment."""
DIRTY: Final = "-dirty"


def repeated(subject: Subject) -> Verdict:
    """R11: at least ten runs per cell. R25 has their order and their seeds."""
    if not subject.runs:
        return broken("there is no run")
    arms = Counter((run.cell_id, run.arm) for run in subject.runs)
    (cell_id, arm), least = min(arms.items(), key=lambda one: one[1])
    if least < RUNS_MIN:
        few = sum(count < RUNS_MIN for count in arms.values())
        return broken(f"fewer than {RUNS_MIN} runs in {few} of {len(arms)} cells, as {least} of {cell_id} ({arm})")
    return holds(f"{least} runs a cell or more, in {counted(len({run.round for run in subject.runs}), 'round')}")


def planned_before(subject: Subject) -> Verdict:
    """R20: the plan was committed before, states expectations and when to stop; what was asked for of it was run."""
    session, end = subject.results.session, subject.results.end
    if session.plan_commit is None:
        return broken("the plan was not committed before the run")
    unsaid = [key for key in SAID_BEFORE if not session.plan.get(key)]
    if unsaid:
        return broken(f"the plan says nothing of {', '.join(unsaid)}")
    copy = subject.folder / PLAN
    if not copy.is_file():
        return broken(f"{PLAN} does not lie beside the results")
    if _digest(copy) != session.plan_sha256:
        return broken(f"{PLAN} is not the plan of this session: its sha256 differs")
    if end is None:
        return broken("the session has no end, so what is missing is unknown")
    if end.stopped_by is not None or len(subject.runs) != end.runs_planned:
        why = end.stopped_by or "no reason given"
        there = plural(len(subject.runs), "is")
        return broken(f"{len(subject.runs)} of {counted(end.runs_planned, 'planned run')} {there} there: {why}")
    count = f"{counted(len(subject.runs), 'run')} of {counted(len(subject.cells), 'cell')}"
    if session.left_out:
        apart = "; ".join(session.left_out)
        return holds(f"what was asked for of the plan of commit {session.plan_commit[:12]} was run: {count}; {apart}")
    return holds(f"the plan of commit {session.plan_commit[:12]} was run whole: {count}")


def noise_floor(subject: Subject) -> Verdict:
    """R21: a cell runs twice per round, as A and B, to measure the noise."""
    by_arm: dict[str, Counter[str]] = defaultdict(Counter)
    for run in subject.kept:
        by_arm[run.cell_id][run.arm] += 1
    both = {cell_id: arms for cell_id, arms in by_arm.items() if len(arms) > 1}
    if not both:
        return broken("no cell was measured twice a round, as A and as B")
    uneven = [cell_id for cell_id, arms in both.items() if arms["A"] != arms["B"]]
    if uneven:
        lone = [run for run in subject.runs if run.cell_id in uneven and run.orders_per_s is None]
        return broken(f"A and B do not have the same number of throughputs: {named(labels(lone) or uneven)}")
    pairs = sum(arms["A"] for arms in both.values())
    return holds(f"{counted(pairs, 'pair')} of A and B in {named(both)}")


def reproducible(subject: Subject) -> Verdict:
    """R19: the file has commit, versions, server and machine; each cell has a history, and all are unchanged."""
    session = subject.results.session
    lacking = [key for key in CONDITIONS if session.condition(key) is None]
    if lacking:
        return broken(f"the environment says nothing of {', '.join(lacking)}")
    commit = str(session.condition("code.commit"))
    if commit.endswith(DIRTY):
        return broken(f"the code is of no commit: {commit}")
    if not subject.measured:
        return broken("no run came to its end")
    alone = [run for run in subject.measured if run.history is None or run.history_sha256 is None]
    if alone:
        return broken(f"no history was kept: {named(labels(alone))}")
    there = [
        (run, sum_) for run in subject.measured if (sum_ := _digest(subject.folder / str(run.history))) is not None
    ]
    wrong = [run for run, sum_ in there if sum_ != run.history_sha256]
    if wrong:
        return broken(f"the history is not the one that was written: {named(labels(wrong))}")
    without = {run.cell_id for run in subject.measured} - {run.cell_id for run, _ in there}
    if without:
        return broken(f"no history of a run is beside the results: {named(sorted(without))}")
    count = f"{len(there)} of {len(subject.measured)} histories with their sha256"
    return holds(f"commit {commit[:12]}, {len(CONDITIONS)} conditions, {count}")


def _digest(file: Path) -> str | None:
    try:
        with open_plain(file) as history:
            return hashlib.file_digest(history, "sha256").hexdigest()
    except OSError:
        return None

"""A copy of a session for a repository: all that its report needs, so that it can always be drawn again."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from bench.engine.folder import CALIBRATIONS, ENVIRONMENT, HISTORIES, PLAN, RESULTS, refuse_links
from bench.engine.record import read_results
from bench.report.drawing import redraw
from bench.report.facts import Facts
from bench.report.figures.over_time import shown_order_by_order
from segmented.errors import InvalidInput
from segmented.files import MIB

if TYPE_CHECKING:
    from pathlib import Path

    from bench.display import Progress
    from bench.engine.record import ResultFile
    from bench.report.drawing import Report

NAME: Final = re.compile(rf"{HISTORIES}/[0-9]+\.jsonl\.zst")
HISTORIES_MAX: Final = 4 * MIB
"""Histories of further rounds are left out above this many bytes; those of the first round never are."""


def publish(folder: Path, to: Path, progress: Progress, *, history_max: int) -> Report:
    """Copy a session to a new folder, and draw its report there.

    The copy has the results, the plan, the environment, the calibrations, and the histories of the run that F16 shows
    and of whole rounds: the first one, so that one run of each cell can be replayed, and as many as are small enough.
    Raises InvalidInput if the session lacks one of these, or the new folder is there already.
    """
    refuse_links(folder, str(folder))
    results = read_results(folder / RESULTS)
    strange = [run.history for run in results.runs if run.history and not NAME.fullmatch(run.history)]
    if strange:
        message = f"{folder} cannot be published: {strange[0]!r} is not the name of a history"
        raise InvalidInput(message)
    kept = _histories(results, folder, Facts(results, folder))
    files = [RESULTS, PLAN, ENVIRONMENT, CALIBRATIONS, *kept]
    missing = [name for name in files if not (folder / name).is_file()]
    if missing or not kept:
        message = f"{folder} cannot be published: {missing[0] if missing else HISTORIES} is not there"
        raise InvalidInput(message)
    try:
        (to / HISTORIES).mkdir(parents=True)
        for name in files:
            shutil.copyfile(folder / name, to / name)
    except OSError as error:
        message = f"--publish {to} cannot be written: {error.strerror}; name a folder that does not exist"
        raise InvalidInput(message) from error
    return redraw(to, progress, history_max=history_max)


def _histories(results: ResultFile, folder: Path, facts: Facts) -> list[str]:
    """Return the names of the histories to keep, in order."""
    by_round: dict[int, list[str]] = defaultdict(list)
    for run in results.runs:
        if run.history is not None:
            by_round[run.round].append(run.history)
    shown = shown_order_by_order(facts)
    kept = {shown.history} if shown is not None and shown.history is not None else set()
    for place, names in enumerate(by_round[number] for number in sorted(by_round)):
        more = kept | set(names)
        sizes = [(folder / name).stat().st_size for name in more if (folder / name).is_file()]
        if place and sum(sizes) > HISTORIES_MAX:
            break
        kept = more
    return sorted(kept)

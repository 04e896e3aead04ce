"""Our end of a measuring process: start it, hear what it says, and see that it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from bench.record import RunRecord
from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.assignment import Assignment

    Progress = Callable[[str, int, int], None]
    """Told the phase, how much of it is done, and out of how much."""

LEAVE_SECONDS: Final = 5.0


def measure_in_child(assignment: Assignment, progress: Progress) -> RunRecord:
    """Measure a strategy in a fresh process. Raises SegmentedError when it fails or takes too long."""
    seconds = assignment.seconds_at_most
    with tempfile.TemporaryFile("w+") as errors, _started(assignment, errors.fileno()) as child:
        overdue = threading.Timer(seconds, child.kill)
        overdue.start()
        try:
            record = _heard(child, progress)
        finally:
            overdue.cancel()
        if record is not None:
            return record
        errors.seek(0)
        last_words = [line.strip() for line in errors.read().splitlines() if line.strip()][-1:]
        message = f"measuring {assignment.strategy} ended early: {' '.join(last_words) or f'not done in {seconds:g} s'}"
        raise SegmentedError(message)


@contextmanager
def _started(assignment: Assignment, errors: int) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "bench.run_strategy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C reaches us alone, and we end the child
    )
    try:
        if child.stdin is not None:
            child.stdin.write(assignment.as_json() + "\n")
            child.stdin.flush()
        yield child
    finally:
        _end(child)


def _heard(child: subprocess.Popen[str], progress: Progress) -> RunRecord | None:
    for line in child.stdout or ():
        said: dict[str, Any] = json.loads(line)
        event = said.pop("event")
        if event == "failed":
            raise (InvalidInput if said["is_input"] else SegmentedError)(said["reason"])
        if event == "record":
            return RunRecord.from_json(said["record"])
        progress(event, said["done"], said["total"])
    return None


def _end(child: subprocess.Popen[str]) -> None:
    """Let go of the lifeline, on which the child leaves; kill it if it does not."""
    if child.stdin is not None:
        with suppress(BrokenPipeError):  # it has gone already
            child.stdin.close()
    try:
        child.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()

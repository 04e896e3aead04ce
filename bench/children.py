"""Our end of a measuring process: start it, hear what it says, and see that it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.record import RunRecord
from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.assignment import Assignment

    Progress = Callable[[str, int, int], None]
    """Told the phase, how much of it is done, and out of how much."""

LEAVE_SECONDS: Final = 5.0


def measure_in_child(assignment: Assignment, progress: Progress) -> RunRecord:
    """Measure a strategy in a fresh process. Raises SegmentedError when it fails or takes too long."""
    told = Told("bench.run_strategy", assignment.as_json(), assignment.strategy, assignment.seconds_at_most)
    return RunRecord.from_json(heard_from(told, progress))


@dataclass(frozen=True, slots=True)
class Told:
    """What a measuring process is told."""

    module: str
    line: str
    """Its first line of stdin: URLs may have passwords, which a list of processes would show."""
    subject: str
    """What it measures, for messages."""
    seconds: float
    """After which it is killed."""


class Child:
    """A measuring process: it loads its program, which takes a second, and waits for its first line."""

    def __init__(self, module: str) -> None:
        """Start it."""
        with ExitStack() as stack:
            self._errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and modules
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                start_new_session=True,  # a terminal's Ctrl-C reaches us alone, and we end the child
            )
            stack.pop_all()

    def hear(self, told: Told, progress: Progress) -> dict[str, Any]:
        """Tell it what to do, and return its record. Raises SegmentedError when it fails or takes too long."""
        overdue = threading.Timer(told.seconds, self._process.kill)
        overdue.start()
        try:
            with suppress(BrokenPipeError):  # it has gone already, and left its last words
                if self._process.stdin is not None:
                    self._process.stdin.write(told.line + "\n")
                    self._process.stdin.flush()
            record = _heard(self._process, progress)
        finally:
            overdue.cancel()
        if record is not None:
            return record
        self._errors.seek(0)
        last_words = [line.strip() for line in self._errors.read().splitlines() if line.strip()][-1:]
        message = f"measuring {told.subject} ended early: {' '.join(last_words) or f'not done in {told.seconds:g} s'}"
        raise SegmentedError(message)

    def close(self) -> None:
        """Let go of it; it ends."""
        let_go(self._process)
        self._errors.close()

    def dismiss(self) -> None:
        """End it before it was told anything."""
        self._process.kill()
        self.close()


def heard_from(told: Told, progress: Progress, waiting: Child | None = None) -> dict[str, Any]:
    """Return the record of a measuring process, a new one or one that waits. Raises as `Child.hear` does."""
    with closing(waiting or Child(told.module)) as child:
        return child.hear(told, progress)


def _heard(child: subprocess.Popen[str], progress: Progress) -> dict[str, Any] | None:
    for line in child.stdout or ():
        said: dict[str, Any] = json.loads(line)
        event = said.pop("event")
        if event == "failed":
            raise (InvalidInput if said["is_input"] else SegmentedError)(said["reason"])
        if event == "record":
            found: dict[str, Any] = said["record"]
            return found
        progress(event, said["done"], said["total"])
    return None


def let_go(child: subprocess.Popen[Any]) -> None:
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

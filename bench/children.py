"""Starts and ends child processes, and controls a measuring one: sends it assignments, and reads its records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from typing import IO, TYPE_CHECKING, Any, Final

from segmented.errors import InvalidInput, SegmentedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.engine.cell import RunAssignment
    from bench.results import Progress

LEAVE_SECONDS: Final = 5.0
LAST_WORDS_MAX: Final = 100_000


class MeasuringProcess:
    """A process that imports everything needed once, which takes seconds, and forks for each assignment."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a process that runs `module`, which calls `fork_for_each_line` of `bench.engine.run_cell`.

        It has this process's environment unless another one is given.
        """
        with ExitStack() as stack:
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            self._process = start_child(("-m", module), errors=self._errors, environment=environment)
            stack.pop_all()
        self._complained = 0  # bytes of stderr from earlier assignments

    def run(
        self, assignment: RunAssignment, progress: Progress, *, seconds: float | None = None, subject: str = ""
    ) -> dict[str, Any]:
        """Run an assignment in a fork and return its record. Can be called repeatedly.

        Raises SegmentedError, which names the `subject`, if it fails or takes longer than `seconds`. After a timeout
        the process cannot be used again.
        """
        seconds = seconds or assignment.seconds_at_most
        overdue = threading.Timer(seconds, kill_group, [self._process])
        overdue.start()
        try:
            # on its stdin: URLs may have passwords, which a process list would show
            tell_child(self._process, assignment.model_dump_json())
            record, code = _read_record(self._process, progress)
        finally:
            overdue.cancel()
        begin, self._complained = self._complained, os.fstat(self._errors.fileno()).st_size
        if record is not None:
            return record
        begin = max(begin, self._complained - LAST_WORDS_MAX)
        errors = os.pread(self._errors.fileno(), LAST_WORDS_MAX, begin).decode(errors="replace")
        last_words = [line.strip() for line in errors.splitlines() if line.strip()][-1:]
        ended = f"not done in {seconds:g} s" if code is None else _ended(code)
        raise SegmentedError(
            f"measuring {subject or assignment.cell.cell_id} ended early: {' '.join(last_words) or ended}"
        )

    def close(self) -> None:
        """Close the process's stdin, so that it ends."""
        close_process(self._process)
        self._errors.close()


def _read_record(child: subprocess.Popen[str], progress: Progress) -> tuple[dict[str, Any] | None, int | None]:
    """Return the fork's record, if any, and its exit code; None if the parent process ended too."""
    record: dict[str, Any] | None = None
    code: int | None = None
    failure: SegmentedError | None = None
    for line in child.stdout or ():
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:  # a line truncated by a kill, or the empty line after it
            continue
        event = said.pop("event")
        if event == "left":
            code = said["code"]
            break
        if event == "failed":
            failure = (InvalidInput if said["is_input"] else SegmentedError)(said["reason"])
        elif event == "record":
            record = said["record"]
        else:
            progress(event, said["done"], said["total"])
    if failure is not None:
        raise failure
    return record, code


def _ended(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def start_child(
    arguments: Sequence[str],
    *,
    errors: IO[Any] | int,
    output: IO[Any] | int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    python: str = sys.executable,
) -> subprocess.Popen[str]:
    """Start a Python process that exits when its stdin ends, so that it does not outlive this one.

    It has this process's environment, folder and interpreter unless others are given, and a session of its own: a
    terminal's Ctrl-C reaches only this process, which ends it.
    """
    return subprocess.Popen(  # noqa: S603  # our own interpreter and modules
        [python, "-P", *arguments],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=errors,
        text=True,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )


def tell_child(child: subprocess.Popen[str], line: str) -> None:
    """Write a line to its stdin. If it has ended, its error output says why."""
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.write(line + "\n")
            child.stdin.flush()


def hang_up(child: subprocess.Popen[Any]) -> None:
    """Close its stdin, on which it exits."""
    if child.stdin is not None:
        with suppress(BrokenPipeError):  # it has ended
            child.stdin.close()


def close_process(child: subprocess.Popen[Any], *, seconds: float = LEAVE_SECONDS) -> None:
    """Close the child's stdin, on which it exits; kill it if it does not within `seconds`."""
    hang_up(child)
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        kill_group(child)
        child.wait()
    if child.stdout is not None:
        child.stdout.close()


def kill_group(leader: subprocess.Popen[Any]) -> None:
    """Kill a process group by its leader."""
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)

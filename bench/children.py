"""Starts and ends child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LEAVE_SECONDS: Final = 5.0


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


def close_process(child: subprocess.Popen[Any], *, seconds: float = LEAVE_SECONDS) -> None:
    """Close the child's stdin, on which it exits; kill it if it does not within `seconds`."""
    if child.stdin is not None:
        with suppress(BrokenPipeError):  # it has ended
            child.stdin.close()
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

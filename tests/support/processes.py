"""Processes of a test: one whose output is kept in a file, and which of those that were started still run."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

LOOK_SECONDS: Final = 0.02
END_SECONDS: Final = 100.0


class Logged:
    """A process in a session of its own, and what it has said so far."""

    def __init__(self, words: Sequence[str], said_in: Path, *, cwd: Path, environment: Mapping[str, str]) -> None:
        self._said_in = said_in
        with said_in.open("ab") as output:
            self.process = subprocess.Popen(
                words,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._said_in.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """To the process and its children alike."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill it and its children, if it still runs."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait(END_SECONDS)

    def end(self) -> None:
        """Ask it to end, and see that it does, in good order."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(END_SECONDS) == 0, self.said()


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that still run. One that only waits to be buried does not: some systems bury once a second."""
    return [process for process in processes if _is_alive(process)]


def outlasting(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until none of them runs, or the time is up; return those that still do."""
    deadline = time.monotonic() + seconds
    left = alive(processes)
    while left and time.monotonic() < deadline:
        threading.Event().wait(LOOK_SECONDS)
        left = alive(left)
    return left


def words_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process; nothing if it has ended, also if it waits for its parent's wait."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

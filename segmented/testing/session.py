"""The processes of a session, as Linux lists them in /proc. Where there is no such list, it is empty.

A process is of its session whoever becomes its parent, and whether or not the leader is still there. The session bears
the leader's process id, which the system gives to nobody else while one process of the session is left.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
ENDED: Final = frozenset("ZX")
"""States of what runs no more, and only waits until its parent has asked for its exit code."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A process at the moment it was looked at."""

    pid: int
    state: str
    """One letter: T for one that stands still."""
    group: int
    session: int
    threads: int
    began_at: int
    """In ticks since the system's start: with the process id, one process and no other."""

    @property
    def is_living(self) -> bool:
        """Does any of its threads still run? The first of them may have ended before the others."""
        return self.state not in ENDED or self.threads > 1


def listed(pid: int) -> Listed | None:
    """Return a process; None where it is not, or is not listed."""
    try:
        said = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = said.rpartition(")")[2].split()  # from the third field on: a name may hold anything
    return Listed(pid, fields[0], int(fields[2]), int(fields[3]), int(fields[17]), int(fields[19]))


def living(session: int) -> list[Listed]:
    """Return the processes of a session that have not ended."""
    pids = (int(entry.name) for entry in PROC.glob("[0-9]*"))
    found = (listed(pid) for pid in pids)
    return [one for one in found if one is not None and one.session == session and one.is_living]


def kill(process: Listed) -> None:
    """Send SIGKILL to this process, unless it has gone or its number is somebody else's by now."""
    now = listed(process.pid)
    if now is not None and now.began_at == process.began_at:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)

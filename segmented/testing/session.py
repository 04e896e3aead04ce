"""The processes of a session, from Linux's /proc; none on systems without it.

A process stays in its session when its parent changes or the leader ends. The session's id is the leader's process id,
which the system does not reuse while a process of the session is left.
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
"""States of an ended process whose parent has not read its exit code yet."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A process at the time of the reading."""

    pid: int
    state: str
    """One letter: T for a stopped process."""
    group: int
    session: int
    threads: int
    began_at: int
    """In ticks since the system's start; together with the process id, it identifies the process."""

    @property
    def is_living(self) -> bool:
        """Return whether any of its threads still runs; the first one may end before the others."""
        return self.state not in ENDED or self.threads > 1


def listed(pid: int) -> Listed | None:
    """Return a process, or None if it does not exist or is not listed."""
    try:
        said = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = said.rpartition(")")[2].split()  # from the third field on: a name may contain anything
    return Listed(pid, fields[0], int(fields[2]), int(fields[3]), int(fields[17]), int(fields[19]))


def living(session: int) -> list[Listed]:
    """Return the processes of a session that have not ended."""
    pids = (int(entry.name) for entry in PROC.glob("[0-9]*"))
    found = (listed(pid) for pid in pids)
    return [one for one in found if one is not None and one.session == session and one.is_living]


def kill(process: Listed) -> None:
    """Send SIGKILL to this process, unless it is gone or another process has its id now."""
    now = listed(process.pid)
    if now is not None and now.began_at == process.began_at:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)

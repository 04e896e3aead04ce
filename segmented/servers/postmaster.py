"""PostgreSQL's own status file in its data folder, `postmaster.pid`: who runs it, and whether it takes connections."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

FILE_NAME: Final = "postmaster.pid"
STATUS_LINE: Final = 7
PROGRAM: Final = "postgres"


def is_ready(cluster: Path, pid: int) -> bool:
    """Is this very process the one that takes connections? The file of a dead server may still be there."""
    lines = _lines(cluster)
    return lines[:1] == [str(pid)] and lines[STATUS_LINE : STATUS_LINE + 1] == ["ready"]


def forget_dead(cluster: Path) -> None:
    """Remove the file of a server that died, if its process id now belongs to something else.

    PostgreSQL itself only asks whether such a process exists, and in a container that was started again one often does.
    Call it with a claim on the data folder, which is proof that no process of our older servers is left.
    """
    pid = "".join(_lines(cluster)[:1])
    if pid.isdecimal() and PROGRAM not in Path(program_of(int(pid))).name:
        (cluster / FILE_NAME).unlink(missing_ok=True)


def program_of(pid: int) -> str:
    """Return the program that a process runs, or nothing if there is none, or only an unburied one."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").partition("\0")[0]
        except OSError:
            return ""
    argv = ["/bin/ps", "-p", str(pid), "-o", "comm="]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603  # fixed words


def _lines(cluster: Path) -> list[str]:
    try:
        return [line.strip() for line in (cluster / FILE_NAME).read_text().splitlines()]
    except OSError:
        return []

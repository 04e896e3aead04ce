"""Peak memory of this process and of those it started. Linux tells it for each; elsewhere only a maximum is known."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PROC: Final = Path("/proc")
KIB: Final = 1_024
MIB: Final = 1_024 * KIB


def own_peak_mib() -> float:
    """Return the most memory this process ever had."""
    # Not getrusage first: on Linux a process inherits the peak of the one that started it there.
    peak = _status_mib(PROC / "self")
    return peak if peak is not None else _rusage_mib(resource.RUSAGE_SELF)


def children_peak_mib(names: Mapping[int, str]) -> dict[str, float]:
    """Return the peak of the largest process of each name among those started by us, and by them.

    `names` are better ones for some process ids than the system's.
    """
    if not (PROC / "self" / "stat").exists():
        return {"largest": _rusage_mib(resource.RUSAGE_CHILDREN)}
    found: dict[str, float] = {}
    for folder, system_name in _descendants():
        peak = _status_mib(folder)
        if peak is not None:
            name = names.get(int(folder.name), system_name)
            found[name] = max(peak, found.get(name, 0.0))
    return dict(sorted(found.items()))


def _descendants() -> list[tuple[Path, str]]:
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue  # gone
        name, _, rest = stat.partition("(")[2].rpartition(")")
        parents[int(folder.name)] = int(rest.split()[1])
        names[int(folder.name)] = name
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return [(PROC / str(pid), names[pid]) for pid in ours if pid in names and pid != os.getpid()]


def _status_mib(folder: Path) -> float | None:
    try:
        lines = (folder / "status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * KIB / MIB
    return None


def _rusage_mib(who: int) -> float:
    peak = resource.getrusage(who).ru_maxrss
    return peak / MIB if sys.platform == "darwin" else peak * KIB / MIB

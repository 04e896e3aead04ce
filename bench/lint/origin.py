"""R19: the session's conditions, and the unchanged history of all calls."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from bench.lint.finding import broken, holds, named
from bench.lint.subject import condition, labels

if TYPE_CHECKING:
    from pathlib import Path

    from bench.lint.finding import Verdict
    from bench.lint.subject import Subject

CONDITIONS: Final = (
    "code.commit",
    "code.python",
    "code.versions",
    "machine.kernel",
    "machine.cpu_model",
    "machine.cores",
    "machine.governor",
    "machine.steal_percent",
    "disk.file_system",
    "disk.fdatasync_us",
    "servers.redis.version",
    "servers.redis.config",
    "placement",
)
"""Required entries of the environment."""
DIRTY: Final = "-dirty"


def reproducible(subject: Subject) -> Verdict:
    """R19: the file has commit, versions, server configuration and machine; histories have the recorded sha256."""
    environment = subject.results.session.environment
    lacking = [key for key in CONDITIONS if condition(environment, key) is None]
    if lacking:
        return broken(f"the environment says nothing of {', '.join(lacking)}")
    commit = str(condition(environment, "code.commit"))
    if commit.endswith(DIRTY):
        return broken(f"the code is of no commit: {commit}")
    if not subject.measured:
        return broken("no run came to its end")
    alone = [run for run in subject.measured if run.history is None or run.history_sha256 is None]
    if alone:
        return broken(f"no history was kept: {named(labels(alone))}")
    wrong = [run for run in subject.measured if _digest(subject.folder / str(run.history)) != run.history_sha256]
    if wrong:
        return broken(f"the history is missing, or is not the one that was written: {named(labels(wrong))}")
    return holds(
        f"commit {commit[:12]}, {len(CONDITIONS)} conditions, {len(subject.measured)} histories with their sha256"
    )


def _digest(file: Path) -> str | None:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None

"""The journal of events: one line each, appended in one write, independent of kills and stores."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """A line: what (`ready`, `began`, `retry`, `effect`, `ended`, `held`, `gathered`), where and when."""

    event: str
    key: str
    """Key of the order; for a chord's callback the number of its slots."""
    run: str
    """Id of one start of a body."""
    attempt: int
    pid: int
    at: float
    """Seconds of this machine's monotonic clock, the same for all its processes."""


def note(path: str, event: str, *, key: str = "", run: str = "", attempt: int = 0) -> None:
    """Append a line. `O_APPEND` keeps lines of several processes intact."""
    entry: dict[str, Any] = {"event": event, "key": key, "run": run, "attempt": attempt}
    line = json.dumps({**entry, "pid": os.getpid(), "at": time.monotonic()}) + "\n"
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(journal, line.encode())
    finally:
        os.close(journal)


def entries(path: Path) -> list[Entry]:
    """Return the complete lines so far, oldest first."""
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [Entry(**json.loads(line)) for line in whole.splitlines()]

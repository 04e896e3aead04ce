"""What really happened: one line an event, appended in one write, so that no kill and no store can take it back."""

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
    """Of the order; of a chord's callback, how many slots it got."""
    run: str
    """One start of a body."""
    attempt: int
    pid: int
    at: float
    """Seconds of this machine's monotonic clock, the same for all its processes."""


def note(path: str, event: str, *, key: str = "", run: str = "", attempt: int = 0) -> None:
    """Append a line. `O_APPEND` keeps lines of several processes apart."""
    entry: dict[str, Any] = {"event": event, "key": key, "run": run, "attempt": attempt}
    line = json.dumps({**entry, "pid": os.getpid(), "at": time.monotonic()}) + "\n"
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(journal, line.encode())
    finally:
        os.close(journal)


def entries(path: Path) -> list[Entry]:
    """Return the whole lines so far, oldest first."""
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [Entry(**json.loads(line)) for line in whole.splitlines()]

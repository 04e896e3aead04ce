"""A case's settings for its processes, in one environment variable, and the journal of events, which outlives kills."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE: Final = "DEDUP_CASE"
CHARGE: Final = "dedup.charge"
LABEL: Final = "dedup.label"
GATHER: Final = "dedup.gather"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Addresses, and the behaviour of workers and task bodies."""

    broker: str
    results: str
    store: str
    """URL of the claims: a separate server, so that it can be down while the broker is up."""
    journal: str
    """Path of the journal, outside of all stores."""
    owner_pid: int
    """Id of the process with which a worker ends."""
    visibility_seconds: int = 3600
    """Seconds after which an unacknowledged message is delivered again."""
    acks_late: bool = True
    time_limit: float | None = None
    """Seconds after which the pool kills a body."""
    lease_seconds: int | None = None
    """How long a claim lives; None: the contender's default or recommendation."""
    store_down: str = "refuse"
    """Behaviour while the store is down, if configurable: refuse or run."""
    seconds_before: float = 0.0
    """Seconds in the body before its effect."""
    seconds_after: float = 0.0
    """Seconds in the body after its effect."""
    retries: int = 0
    """How many attempts retry without an effect."""
    hold_at: str = ""
    """Where a run waits until it is killed: after `retry` (published), `effect`, or `returned` (all recorded)."""

    def to_environment(self) -> dict[str, str]:
        """Return the variables for a child's environment."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> Self:
        """Read the settings from the environment."""
        return cls(**json.loads(os.environ[VARIABLE]))


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

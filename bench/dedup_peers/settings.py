"""What a case asks of the processes it starts; it reaches them through one variable of their environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Final, Self

VARIABLE: Final = "DEDUP_CASE"
CHARGE: Final = "dedup.charge"
LABEL: Final = "dedup.label"
GATHER: Final = "dedup.gather"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Addresses, what the worker does with a message, and what the body of a task does."""

    broker: str
    results: str
    store: str
    """Where claims are kept: a server of its own, so that it can be away while the broker is there."""
    journal: str
    """The file in which every run leaves its lines, outside of all stores."""
    owner_pid: int
    """The process without which a worker has no reason to go on."""
    visibility_seconds: int = 3600
    """After which an unacknowledged message is delivered again."""
    acks_late: bool = True
    time_limit: float | None = None
    """Seconds after which the pool kills a body."""
    lease_seconds: int | None = None
    """How long a claim lives; None: as the contender has it, or recommends it."""
    store_down: str = "refuse"
    """What to do where it can be told: refuse or run."""
    seconds_before: float = 0.0
    """In the body, before its effect."""
    seconds_after: float = 0.0
    """In the body, after its effect."""
    retries: int = 0
    """How many attempts ask for another one, and have no effect."""
    hold_at: str = ""
    """Where a run stands still until it is killed: `retry` (published), `effect` (had), `returned` (all recorded)."""

    def to_environment(self) -> dict[str, str]:
        """Return what to add to a child's environment."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> Self:
        """Read what the parent wrote."""
        return cls(**json.loads(os.environ[VARIABLE]))

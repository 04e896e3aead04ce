"""Critical sections: the work done after taking the units, while the lock, if any, is held."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Literal, get_args

from bench.alarm import sleep
from segmented.errors import InvalidInput

Kind = Literal["none", "sleep", "cpu", "commit"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MILLISECONDS_MAX: Final = 2_000.0
"""Well below the ten seconds of a lease."""


@dataclass(frozen=True, slots=True)
class Section:
    """A slow step: nothing, a sleep, CPU work, or a commit in PostgreSQL after a sleep of `ms`.

    One call of `run` serves a whole batch: that is the purpose of batches. The strategy does the commit itself, since
    its guarantees depend on what it writes.
    """

    kind: Kind
    ms: float = 0.0

    def __post_init__(self) -> None:
        """Validate kind and milliseconds. Raises InvalidInput."""
        if self.kind not in KINDS:
            message = f"unknown critical section {self.kind!r}; known are: {', '.join(KINDS)}"
            raise InvalidInput(message)
        if not 0 <= self.ms <= MILLISECONDS_MAX:  # also refuses NaN
            message = f"a hold of {self.ms:g} ms must be between 0 and {MILLISECONDS_MAX:,g} ms"
            raise InvalidInput(message)
        if self.kind == "none" and self.ms:
            message = f"a critical section of kind none has no hold, so {self.ms:g} ms says two things"
            raise InvalidInput(message)
        if self.kind in {"sleep", "cpu"} and not self.ms:
            message = f"a critical section of kind {self.kind} needs a hold above 0 ms; with 0 it is: none"
            raise InvalidInput(message)

    @property
    def commits(self) -> bool:
        """Return whether every order is stored in the order database."""
        return self.kind == "commit"

    def run(self) -> None:
        """Spend the time."""
        if self.kind == "cpu":
            until = time.thread_time() + self.ms / 1_000
            while time.thread_time() < until:
                pass
        elif self.ms:
            sleep(self.ms / 1_000)

    def __str__(self) -> str:
        """Return a short name: `none`, `20ms`, `cpu-1ms`, `commit`, `commit+20ms`."""
        if self.kind == "none":
            return "none"
        if self.kind == "sleep":
            return f"{self.ms:g}ms"
        if self.kind == "cpu":
            return f"cpu-{self.ms:g}ms"
        return f"commit+{self.ms:g}ms" if self.ms else "commit"

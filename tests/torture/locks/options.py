"""The options of `torture locks`, validated once, and the kinds of lock that can be tested.

A kind has the guarantees that an observer can check. Each error names the option and its value.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from segmented.errors import InvalidInput
from segmented.stores.redis.addresses import Deployment, parse_address
from tests.torture.options import require_within

PERMITS: Final = 3
KILL, PAUSE, CUT, CANCEL, RESTART = "kill", "pause", "cut", "cancel", "restart"
FAULTS: Final = (KILL, PAUSE, CUT, CANCEL, RESTART)
ALL: Final = "all"
DEFAULT_FAULTS: Final = f"{KILL},{PAUSE}"
PATIENCE: Final = 5.0
"""Seconds beyond a lease within which there must be an entry, on a machine that is busy starting processes."""
SECONDS_MIN: Final = 1.0
SECONDS_MAX: Final = 86_400.0
PROCESSES_MIN: Final = 2
PROCESSES_MAX: Final = 64
THREADS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind's guarantees, as the checker needs them."""

    name: str
    is_fenced: bool = True
    """Whether a resource can refuse old holders by token. It cannot for a semaphore or a quorum lock."""
    permits: int = 1
    """Maximum number of concurrent holders, readers not counted."""
    servers: int = 1
    ttl: float = 0.5
    """Seconds that a lease lasts."""
    patience: float = PATIENCE


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("lock"),
        Kind("reentrant"),
        # Its own bound: stopped or dead waiters ahead cost up to 45 s, however many they are (segmented.locks.fair).
        Kind("fair", patience=45.0 + PATIENCE),
        Kind("read_write"),
        Kind("semaphore", is_fenced=False, permits=PERMITS),
        Kind("multi"),
        Kind("quorum", is_fenced=False, servers=3, ttl=1.0),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TortureOptions:
    """The options of a run. `url` replaces the embedded server."""

    kind: str = "lock"
    seconds: float = 30.0
    processes: int = 8
    threads: int = 8
    seed: int = 1
    url: str | None = None
    faults: str = DEFAULT_FAULTS
    """The faults to inject, separated by commas, or "all"."""
    log: Path | None = None
    """File for the log of every access."""

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        self.what()
        require_within("--seconds", self.seconds, SECONDS_MIN, SECONDS_MAX)
        require_within("--processes", self.processes, PROCESSES_MIN, PROCESSES_MAX)
        require_within("--threads", self.threads, 1, THREADS_MAX)
        for name in self._named_faults():
            if name not in {*FAULTS, ALL}:
                raise InvalidInput(f"--faults {name!r} is unknown; known are: {', '.join(FAULTS)}, or {ALL}")
        if self.url is None:
            return
        if self.what().servers > 1:
            message = f"--url {self.url}: {self.kind} needs {self.what().servers} servers, which are embedded ones"
            raise InvalidInput(message)
        if parse_address(self.url).deployment is not Deployment.SINGLE:
            raise InvalidInput(f"--url {self.url}: only a single server can be used")
        if self.injects(RESTART):
            message = f"--url {self.url}: only an embedded server can be restarted; leave {RESTART} out of --faults"
            raise InvalidInput(message)

    def what(self) -> Kind:
        """Return the kind of lock. Raises InvalidInput that lists the known kinds."""
        if self.kind not in KINDS:
            raise InvalidInput(f"--kind {self.kind!r} cannot be tortured; known are: {', '.join(KINDS)}")
        return KINDS[self.kind]

    def injects(self, fault: str) -> bool:
        """Return whether the run injects this fault."""
        return bool({fault, ALL} & set(self._named_faults()))

    @property
    def tasks(self) -> int:
        """Number of asyncio tasks of a process that contend beside its threads, for the cancellations."""
        return self.threads if self.injects(CANCEL) else 0

    def _named_faults(self) -> list[str]:
        return [name.strip() for name in self.faults.split(",")]

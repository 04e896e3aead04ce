"""The options of `torture locks`, validated once. Each error names the option and its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.torture.kinds import Kind, find_kind
from segmented.errors import InvalidInput
from segmented.stores.redis.addresses import Deployment, parse_address

if TYPE_CHECKING:
    from pathlib import Path

SECONDS_MIN: Final = 1.0
SECONDS_MAX: Final = 86_400.0
PROCESSES_MIN: Final = 2
PROCESSES_MAX: Final = 64
THREADS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TortureOptions:
    """The options of a run. `url` replaces the embedded server."""

    kind: str = "lock"
    seconds: float = 30.0
    processes: int = 8
    threads: int = 8
    seed: int = 1
    url: str | None = None
    cut_connections: bool = False
    """Cut connections of the contenders to the server at random."""
    log: Path | None = None
    """File for the log of every access."""

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        self.what()
        _within("--seconds", self.seconds, SECONDS_MIN, SECONDS_MAX)
        _within("--processes", self.processes, PROCESSES_MIN, PROCESSES_MAX)
        _within("--threads", self.threads, 1, THREADS_MAX)
        if self.url is None:
            return
        if self.what().servers > 1:
            message = f"--url {self.url}: {self.kind} needs {self.what().servers} servers, which are embedded ones"
            raise InvalidInput(message)
        if parse_address(self.url).deployment is not Deployment.SINGLE:
            message = f"--url {self.url}: only a single server can be used"
            raise InvalidInput(message)

    def what(self) -> Kind:
        """Return the kind of lock. Raises InvalidInput for an unknown one."""
        return find_kind(self.kind)


def _within(option: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also refuses NaN
        message = f"{option} {value:g} must be between {low:,g} and {high:,g}"
        raise InvalidInput(message)

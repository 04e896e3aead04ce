"""What is written down while locks are tortured: one event a line, in the order in which the resource saw them.

All times are seconds of the machine's monotonic clock, which its processes share.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXCLUSIVE: Final = "exclusive"
SHARED: Final = "shared"
PERMIT: Final = "permit"


@dataclass(frozen=True, slots=True)
class Began:
    """All contenders are there: from now on somebody must get in, on every name."""

    at: float
    names: list[str]


@dataclass(frozen=True, slots=True)
class Entered:
    """A holder asked to be let in."""

    at: float
    access: int
    name: str
    token: int | None
    """None: its lock has none."""
    holder: str
    mode: str
    """`exclusive`, `shared` with others of the same token, or one `permit` of several."""
    process: int
    held_since: float
    """When the holder knew that it had the lease."""
    trusted_until: float
    """Until when it may trust it."""
    waited: float
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Wrote:
    """A holder that had been let in wrote."""

    at: float
    access: int
    trusted_until: float
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Left:
    """A holder that had been let in left, and releases its lease after the answer."""

    at: float
    access: int
    trusted_until: float
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Died:
    """The connection of a holder that was inside has ended."""

    at: float
    access: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Somebody did not get the lock: `timeout`, `late`, or `unavailable` when the server could not be asked."""

    at: float
    name: str
    reason: str
    waited: float


@dataclass(frozen=True, slots=True)
class Tormented:
    """A process was `killed`, `paused` or `resumed`; or connections were `cut` (process 0)."""

    at: float
    deed: str
    process: int


@dataclass(frozen=True, slots=True)
class PermitsSeen:
    """How many permits lived, by the server's clock."""

    at: float
    name: str
    living: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The contenders were told to stop."""

    at: float


Event = Began | Entered | Wrote | Left | Died | Missed | Tormented | PermitsSeen | Ended

EVENTS: Final[dict[str, type[Event]]] = {
    event.__name__.lower(): event
    for event in (Began, Entered, Wrote, Left, Died, Missed, Tormented, PermitsSeen, Ended)
}


def line_of(event: Event) -> str:
    """Return the event's line in the log."""
    return json.dumps({"event": type(event).__name__.lower(), **asdict(event)}) + "\n"


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Return the events of a log."""
    for line in lines:
        found = json.loads(line)
        yield EVENTS[found.pop("event")](**found)

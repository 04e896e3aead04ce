"""The events of the log: one a line, in the order in which the resource saw them.

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
    """All contenders have started: from now on there must be entries on every name."""

    at: float
    names: list[str]


@dataclass(frozen=True, slots=True)
class Entered:
    """A holder asked for access."""

    at: float
    access: int
    name: str
    token: int | None
    """None if its lock has no tokens."""
    holder: str
    mode: str
    """`exclusive`, `shared` with holders of the same token, or one `permit` of several."""
    process: int
    held_since: float
    """When the holder learned that it had the lease."""
    trusted_until: float
    """Until when the holder may trust the lease."""
    waited: float
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Wrote:
    """A holder with access wrote."""

    at: float
    access: int
    trusted_until: float
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Left:
    """A holder with access left; it releases its lease after the answer."""

    at: float
    access: int
    trusted_until: float
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class Died:
    """The connection of a holder with access ended."""

    at: float
    access: int


@dataclass(frozen=True, slots=True)
class Missed:
    """A contender did not get the lock: `timeout`, `late`, or `unavailable` if the server could not be reached."""

    at: float
    name: str
    reason: str
    waited: float


@dataclass(frozen=True, slots=True)
class FaultInjected:
    """A process was `killed`, `paused` or `resumed`; or connections were `cut` (process 0)."""

    at: float
    deed: str
    process: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A task was cancelled: `before` its first step, in the `acquire`, the `body` or the `release`, or by its `group`.

    The last means that another task of its group failed.
    """

    at: float
    moment: str
    process: int
    is_heeded: bool
    """Whether it ended by the cancellation, or by an error of the lock, and did not go on."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """A server answers again after it was killed; it was away for so many seconds."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A process of contenders stopped as asked, and closed its stores. It counted what was left of them."""

    at: float
    process: int
    tasks: int
    connections: int


@dataclass(frozen=True, slots=True)
class PermitsSeen:
    """How many permits were live, by the server's clock."""

    at: float
    name: str
    living: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The contenders were told to stop."""

    at: float


Event = (
    Began
    | Entered
    | Wrote
    | Left
    | Died
    | Missed
    | FaultInjected
    | Cancelled
    | Restarted
    | Finished
    | PermitsSeen
    | Ended
)

EVENTS: Final[dict[str, type[Event]]] = {
    event.__name__.lower(): event
    for event in (
        *(Began, Entered, Wrote, Left, Died, Missed, FaultInjected),
        *(Cancelled, Restarted, Finished, PermitsSeen, Ended),
    )
}


def line_of(event: Event) -> str:
    """Return the event's line in the log."""
    return json.dumps({"event": type(event).__name__.lower(), **asdict(event)}) + "\n"


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Return the events of a log."""
    for line in lines:
        found = json.loads(line)
        yield EVENTS[found.pop("event")](**found)

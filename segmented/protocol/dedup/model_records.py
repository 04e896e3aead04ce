"""The model's records of a key or of one of its messages. Times are milliseconds of the store's clock."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from segmented.models.dedup import OnLapse, OutcomeKind


@dataclass(slots=True)
class Sitting:
    """A message that has the seat."""

    message: str
    seen: str
    until: int
    since: int
    attempt: int
    sent_at: int


@dataclass(slots=True)
class Run:
    """A holder at work."""

    message: str
    seen: str
    holder_id: str
    token: int
    attempt: int
    begun_at: int
    until: int
    on_lapse: OnLapse
    is_doubted: bool = False

    def is_live(self, now: int) -> bool:
        """Return whether the lease is alive."""
        return not self.is_doubted and self.until > now

    def is_unknown(self, now: int) -> bool:
        """Return whether the lease has expired and it is unknown whether the work was done."""
        return not self.is_live(now) and self.on_lapse == "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a message ended."""

    message: str
    token: int
    seen: str
    at: int
    kind: OutcomeKind
    body: str


@dataclass(frozen=True, slots=True)
class Round:
    """The newest copy of a message that arrived and had to wait."""

    attempt: int
    number: int
    holder_id: str
    at: int


@dataclass(slots=True)
class Place:
    """The record of a key or of a message."""

    seat: Sitting | None = None
    run: Run | None = None
    outcome: Outcome | None = None
    keep_until: int = 0
    token: int = 0
    task: str = ""
    awaited: int | None = None
    """The highest attempt that a message has reached."""
    awaited_until: int = 0
    """Until when that attempt is due."""
    round: Round | None = None
    replaced_by: str = ""
    is_orphan: bool = False
    """Whether the message was replaced because its worker died."""
    reaped: tuple[str, str] | None = None
    """The key's message whose worker died, and its payload's fingerprint, until another one takes its place."""
    lapses_at: float = inf


def differs(one: str, other: str) -> bool:
    """Return whether both payloads are known and differ."""
    return bool(one and other) and one != other

"""The model of the line of processes that wait for one lock. `acquire_lock.lua` is the same on a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from segmented.protocol.lock.operations import (
    FIRST,
    LEFT_MS,
    LINE_TTL_MS,
    NEWCOMER,
    NEWCOMERS_MAX,
    PASSED_MS,
    TURN,
    WAITERS_MAX,
)


class Notice(str):
    """A channel with a message other than a release."""

    __slots__ = ("said",)

    def __new__(cls, channel: str, said: str) -> Self:
        """Create the notice of a message."""
        notice = super().__new__(cls, channel)
        notice.said = said
        return notice

    said: str


@dataclass(slots=True)
class LineModel:
    """The processes that wait, the longest first, and the turns that others have had. Times are seconds."""

    since: float
    """When a process of the line had its turn last, or the first one came."""
    turns: int = 0
    left_until: float = 0.0
    """Until when the free lock is left to the first; 0 if it is not."""
    ends_at: float = 0.0
    parties: list[str] = field(default_factory=list)

    def keep_place(self, party: str, now: float) -> int:
        """Give a process its place, unless it has one; return how many are ahead."""
        if self.ends_at <= now:
            self.parties.clear()
        self.ends_at = now + LINE_TTL_MS / 1000
        if party not in self.parties:
            self.parties.append(party)
        return self.parties.index(party)

    def left_to_first(self, party: str, lease_ms: int, now: float) -> tuple[float | None, str]:
        """Return how long the free lock is left to the first (None: the caller may take it), and a message, if any."""
        if self.ends_at <= now:
            self.parties.clear()
        if self.parties and 0 < self.left_until <= now:  # the first has not come
            del self.parties[0]
            self.turns, self.since, self.left_until = 0, now, 0.0
        if not self.parties:
            return None, ""
        first = self.parties[0]
        if first == party:
            del self.parties[0]
            self.turns, self.since, self.left_until = 0, now, 0.0
            return None, f"{FIRST}{self.parties[0]} {lease_ms}" if self.parties else ""
        turns_max = NEWCOMERS_MAX if party == NEWCOMER else WAITERS_MAX
        if not self.left_until and self.turns < turns_max and now < self.since + PASSED_MS / 1000:
            self.turns += 1
            if party in self.parties:
                self.parties.remove(party)
            return None, ""
        if self.left_until:
            return self.left_until - now, ""
        self.left_until = now + LEFT_MS / 1000
        return LEFT_MS / 1000, TURN + first

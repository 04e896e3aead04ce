"""The model of the line of processes that wait for a lock or a segment. `shared/line.lua` is the same on a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, Self, runtime_checkable

from segmented.protocol.lock.operations import (
    FIRST,
    LEFT_MS,
    LINE_TTL_MS,
    NEWCOMER,
    NEWCOMERS_MAX,
    PASSED_MS,
    TURN,
    WAITERS_MAX,
    LeaveLine,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.clock import Clock
    from segmented.protocol.kinds import Bodies, KindModel

UNTOLD: Final = "semaphore"
"""The kind whose main key does not say for how long it is held: a permit may be free."""


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

    freed: str
    """The channel of the messages."""
    publish: Callable[[str], None]
    since: float = 0.0
    """When a process of the line had its turn last, or the first one came."""
    turns: int = 0
    left_until: float = 0.0
    """Until when what is free is left to the first; 0 if it is not."""
    ends_at: float = 0.0
    parties: list[str] = field(default_factory=list)
    following: str = ""
    """The first process now, if the caller's had its turn and it was not told yet."""

    def keep_place(self, party: str, now: float) -> int:
        """Give a process that waits its place, unless it has one; return how many are ahead."""
        party = _named(party)
        if not party:
            return 0
        self._forget_if_ended(now)
        if not self.parties:
            self.turns, self.since, self.left_until = 0, now, 0.0
        self.ends_at = now + LINE_TTL_MS / 1000
        if party not in self.parties:
            self.parties.append(party)
        return self.parties.index(party)

    def left_to_first(self, party: str, now: float, *, count: int = 1, free_count: int = 1) -> int | None:
        """Return for how many milliseconds what is free is left to the first; None: the caller may take it.

        The line is for `count` locks, of which `free_count` are free. Newcomers have their turns at each of these.
        """
        self._forget_if_ended(now)
        if not party:
            return None
        turns_max = min(WAITERS_MAX, NEWCOMERS_MAX * count) if party.startswith(NEWCOMER) else WAITERS_MAX
        party = _named(party)
        if self.parties and 0 < self.left_until <= now:  # the first has not come
            self._end_turn(now)
        if not self.parties:
            return None
        if self.parties[0] == party:
            self._end_turn(now)
            self._note_following()
            return None
        is_enough = 1 < free_count > self._count_ahead(party)
        if is_enough or (not self.left_until and self.turns < turns_max and now < self.since + PASSED_MS / 1000):
            self.turns += 0 if is_enough else 1
            self._remove(party)
            return None
        if not self.left_until:
            self.left_until = now + LEFT_MS / 1000
            self.publish(Notice(self.freed, TURN + self.parties[0]))
        return round((self.left_until - now) * 1000)

    def wait_behind(self, party: str, now: float, left_ms: int) -> tuple[int, int]:
        """Keep the place of a caller that was not let through; return its free_in_ms and how many are ahead."""
        ahead = self.keep_place(party, now)
        return left_ms + max(0, ahead - 1) * LEFT_MS, ahead

    def tell_following(self, free_in_ms: int) -> None:
        """Tell the next process that it is the first now; something may be free in so many milliseconds."""
        if self.following:
            said = f"{FIRST}{self.following} {free_in_ms}" if free_in_ms else TURN + self.following
            self.publish(Notice(self.freed, said))
            self.following = ""

    def pass_turn(self, party: str, now: float, free_in_ms: int) -> None:
        """End the turn of a process that is refused for good, or waits no more."""
        if self.ends_at > now and self.parties[:1] == [_named(party)]:
            self._end_turn(now)
            self._note_following()
            self.tell_following(free_in_ms)

    def leave(self, party: str, now: float, free_in_ms: int) -> bool:
        """Take a process that waits no more out of the line; return whether it had a place."""
        had_place = self.ends_at > now and party in self.parties
        self.pass_turn(party, now, free_in_ms)
        self._remove(party)
        return had_place

    def _note_following(self) -> None:
        self.following = self.parties[0] if self.parties else ""

    def _remove(self, party: str) -> None:
        if party in self.parties:
            self.parties.remove(party)

    def _forget_if_ended(self, now: float) -> None:
        if self.ends_at <= now:
            self.parties.clear()

    def _end_turn(self, now: float) -> None:
        del self.parties[0]
        self.turns, self.since, self.left_until = 0, now, 0.0

    def _count_ahead(self, party: str) -> int:
        return self.parties.index(party) if party in self.parties else len(self.parties)


@runtime_checkable
class HasLine(Protocol):
    """The model of a kind of lock for which processes wait in a line."""

    def line(self, name: str) -> LineModel:
        """Return the line of the processes that wait for the name."""


class LeavingModel:
    """Leaving the lines of the kinds of locks. A name has one line on a server, and one of each kind here."""

    def __init__(self, clock: Clock, kinds: Iterable[KindModel]) -> None:
        """Create the model for those of `kinds` that have lines."""
        self._clock = clock
        self._kinds = tuple(kinds)

    def bodies(self) -> Bodies:
        """Return the method that performs each operation."""
        return {LeaveLine: self.leave}

    def leave(self, operation: LeaveLine) -> bool:
        """Take the process out of the name's line, and notify the next one."""
        name, now, had_place = operation.name, self._clock.now(), False
        states = (kind.state(name, 1) for kind in self._kinds if kind.holds(name))
        free_in_ms = max((state.free_in_ms or 0 for state in states if state and state.kind != UNTOLD), default=0)
        for kind in self._kinds:
            if isinstance(kind, HasLine):
                had_place |= kind.line(name).leave(operation.party, now, free_in_ms)
        return had_place


def _named(party: str) -> str:
    return party.removeprefix(NEWCOMER)

"""The line of those who wait in one process for one channel: first in, first out, one wake-up a message.

Pure bookkeeping, shared by the threaded, the asyncio and the simulated waiting; none of it sleeps. Four rules keep a
wake-up from being lost or multiplied:

1. a message takes the head out of the line and wakes it; nobody else stirs;
2. whoever was woken and leaves without having needed it passes the wake-up on;
3. only the head minds `due`, the time at which something may be free without a message (a holder died), so a dead
   holder costs one attempt a process, not one a waiter;
4. a message that finds nobody in the line is kept while somebody is out trying: the reply on its way may be older.

Hand-off: whoever frees the thing may make the head's attempt for it, right behind its own release and in the same round
trip. The head leaves the line for that, as if woken, and gets the answer with its wake-up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.protocol import Operation


HAND_OFFS_MAX: Final = 16
HANDING_SECONDS: Final = 0.05
"""After so many hand-offs in a row, or so long, waiters of other processes get the same chance as ours."""
LATE_SECONDS: Final = 0.1
"""How long a waiter whose deadline has come waits for the answer to an attempt that somebody makes for it just then."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What somebody else of the process may do for a parked waiter."""

    attempt: Operation[Any]
    undo: Operation[object] | None
    """Undoes the attempt, if the waiter was gone when the answer came."""
    is_undone_late: bool
    """Undo also for a waiter whose deadline came, not only for one that was cancelled?"""


class Place:
    """One waiter's place in a line."""

    __slots__ = ("arrival", "handed", "has_left", "is_behind", "is_under_way", "line", "notify", "offer", "woken")

    def __init__(self, line: Line, arrival: int, notify: Callable[[], None], *, is_behind: bool) -> None:
        """Belong to `line`; `notify` makes the waiter look at `Line.next_step` again."""
        self.line = line
        self.arrival = arrival
        self.notify = notify
        self.is_behind = is_behind
        self.woken = False
        self.offer: Offer | None = None
        self.is_under_way = False
        """Is somebody making this waiter's attempt?"""
        self.handed: tuple[Any, float] | None = None
        """The answer to that attempt, and the local time just before it was asked for."""
        self.has_left = False

    def take_handed(self) -> tuple[Any, float] | None:
        """Return the answer that came with the wake-up, once."""
        handed, self.handed = self.handed, None
        return handed


class Line:
    """First in, first out; not thread-safe by itself: the wake-ups of each colour guard it."""

    __slots__ = ("_arrivals", "_due", "_handing_since", "_in_a_row", "_members", "_places", "_unheard", "channel")

    def __init__(self, channel: str) -> None:
        """Start empty."""
        self.channel = channel
        self._places: deque[Place] = deque()
        self._arrivals = 0
        self._members = 0
        self._unheard = False
        self._due = inf
        self._in_a_row = 0
        self._handing_since = 0.0

    def __len__(self) -> int:
        """Count those who joined and have not left: who was woken and is trying may come back to park."""
        return self._members

    def join(self, notify: Callable[[], None]) -> Place:
        """Take the last place."""
        self._arrivals += 1
        self._members += 1
        place = Place(self, self._arrivals, notify, is_behind=bool(self._places))
        self._places.append(place)
        return place

    def signal(self) -> None:
        """Wake the head; if all are out trying, the first to come back tries again, as its reply may be older."""
        self._unheard = not self._places and self._members > 0
        if self._places:
            place = self._places.popleft()
            place.woken = True
            place.notify()
            self._notify_head()

    def lets_others(self, now: float) -> bool:
        """Is it time to free the thing by a message alone, so that waiters of other processes get their chance?"""
        if self._in_a_row == 0:
            self._handing_since = now
        if self._in_a_row < HAND_OFFS_MAX and now < self._handing_since + HANDING_SECONDS:
            return False
        self._in_a_row = 0
        return True

    def take_offer(self) -> Place | None:
        """Take the head out of the line, to make its attempt for it; `hand` must follow. None: it has to try itself."""
        if not self._places or self._places[0].offer is None:
            return None
        place = self._places.popleft()
        place.is_under_way = True
        self._in_a_row += 1
        self._notify_head()
        return place

    def hand(self, place: Place, handed: tuple[Any, float] | None) -> bool:
        """Wake a place with the answer to its attempt (None: it has to try itself); False when it has left."""
        place.is_under_way = False
        if place.has_left:
            return False
        place.handed = handed
        place.woken = True
        place.notify()
        return True

    def park(self, place: Place, due: float, offer: Offer | None = None) -> None:
        """Return to the line after an attempt that failed, in order of arrival, with news of when to try again.

        A message may have come while the place was out trying. Then it is to try again at once, and stays out of the
        line: somebody else's attempt for it, beside its own, could take what nobody would ever end.
        """
        place.offer = offer
        if not place.woken and place not in self._places:
            index = 0
            while index < len(self._places) and self._places[index].arrival < place.arrival:
                index += 1
            self._places.insert(index, place)
        if self._unheard:
            self.signal()
        self._expect(due)

    def next_step(self, place: Place, now: float, deadline: float) -> bool | float:
        """Tell a parked waiter: True, wake up; False, the deadline has come; a number, look again then."""
        if place.woken:
            place.woken = False
            return True
        if place.is_under_way:
            return False if now >= deadline + LATE_SECONDS else deadline + LATE_SECONDS
        if now >= deadline:
            return False
        if self._places and self._places[0] is place:
            if now >= self._due:
                self._due = inf
                self._places.popleft()
                self._notify_head()
                return True
            return min(self._due, deadline)
        return deadline

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> None:
        """Give the place up and tell the next in line what was learnt.

        Not `in_time`: the waiter was cancelled, so an attempt that somebody is making for it is to be undone.
        """
        self._members -= 1
        place.has_left = True
        if in_time and place.offer is not None and not place.offer.is_undone_late:
            place.offer = None
        if place in self._places:
            self._places.remove(place)
        if place.woken:
            place.woken = False
            self.signal()
        self._expect(due)

    def _expect(self, due: float) -> None:
        # The earlier one wins, even if it passed unclaimed, while the next in line was still subscribing: an attempt
        # too many is harmless, one too late is a wait.
        self._due = min(due, self._due)
        self._notify_head()

    def _notify_head(self) -> None:
        if self._places:
            self._places[0].notify()

"""The line of those who wait in one process for one channel: first in, first out, one wake-up a message.

Pure bookkeeping, shared by the threaded, the asyncio and the simulated waiting; none of it sleeps. Four rules keep a
wake-up from being lost or multiplied:

1. a message takes the head out of the line and wakes it; nobody else stirs;
2. whoever was woken and leaves without having needed it passes the wake-up on;
3. only the head minds `due`, the time at which something may be free without a message (a holder died), so a dead
   holder costs one attempt a process, not one a waiter;
4. a message that finds nobody in the line is kept while somebody is out trying: the reply on its way may be older.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Place:
    """One waiter's place in a line."""

    __slots__ = ("arrival", "is_behind", "line", "notify", "woken")

    def __init__(self, line: Line, arrival: int, notify: Callable[[], None], *, is_behind: bool) -> None:
        """Belong to `line`; `notify` makes the waiter look at `Line.next_step` again."""
        self.line = line
        self.arrival = arrival
        self.notify = notify
        self.is_behind = is_behind
        self.woken = False


class Line:
    """First in, first out; not thread-safe by itself: the wake-ups of each colour guard it."""

    __slots__ = ("_arrivals", "_due", "_members", "_places", "_unheard", "channel")

    def __init__(self, channel: str) -> None:
        """Start empty."""
        self.channel = channel
        self._places: deque[Place] = deque()
        self._arrivals = 0
        self._members = 0
        self._unheard = False
        self._due = inf

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

    def park(self, place: Place, due: float) -> None:
        """Return to the line after an attempt that failed, in order of arrival, with news of when to try again."""
        if place not in self._places:
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

    def leave(self, place: Place, due: float) -> None:
        """Give the place up and tell the next in line what was learnt."""
        self._members -= 1
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

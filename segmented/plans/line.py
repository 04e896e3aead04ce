"""The queue of waiters of one process for one channel: first in, first out, one wake-up per message.

It only keeps state, for threaded, asyncio and simulated waiting, and does not sleep. Four rules keep a wake-up from
being lost or multiplied:

1. a message takes the head out of the queue and wakes it, and no other waiter;
2. a woken waiter that leaves without using its wake-up passes it on;
3. only the head watches `due`, the time at which the lock may be free without a message (a holder died), so a dead
   holder costs one attempt per process, not one per waiter;
4. a message that finds the queue empty is kept while a waiter is trying: the reply on its way may be older.

Between processes: the line of all processes that wait is in the store, and a failed attempt says how many are ahead of
ours. While there are any, a release that another process announces wakes nobody here, because the first of them is to
take it: ours wakes by the message that it is its turn, or later, should those ahead have died (`hear`).

Hand-off: a caller that frees the lock may make the head's attempt for it, right after its own release and in the same
round trip. For that the head leaves the queue, as if woken, and gets the answer with its wake-up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal

from segmented.protocol.lock import ALL, FIRST, LEFT_MS, TAKEN, TURN
from segmented.values import light_dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.protocol import Operation


TOLD_TO_ALL: Final = frozenset({"frozen", "thawed"})
"""Messages about a pool as a whole, whoever is ahead."""
HAND_OFFS_MAX: Final = 16
HANDING_SECONDS: Final = 0.05
"""After these limits of hand-offs in a row, or seconds, waiters of other processes get the same chance as ours."""
AHEAD_SECONDS: Final = 0.025
"""Seconds that a waiter leaves a freed lock to the processes ahead of its own, before it tries without its turn."""
AT_ONCE: Final = 0.0
"""A local time that has passed."""
LATE_SECONDS: Final = 0.1
"""Seconds that a waiter past its deadline waits for the answer to an attempt that another caller is making for it."""


def stagger(ahead: int) -> float:
    """Return how many seconds later a process tries than the one that is next to the first: in order, within 10 ms.

    However many of those ahead have died, a free lock is then taken within 85 ms: it is left to them for
    `AHEAD_SECONDS`, and to the first for `LEFT_MS`.
    """
    return min(4 * (ahead - 1), 10) * 0.001


@light_dataclass(frozen=True, slots=True)
class Offer:
    """The attempt that another caller in the process may make for a parked waiter."""

    attempt: Operation[Any]
    undo: tuple[Operation[object], ...] = ()
    """Undo the attempt if the waiter was cancelled before the answer came."""
    undo_late: tuple[Operation[object], ...] = ()
    """The same if its deadline passed; a waiter that may repeat its call keeps some of it, or all."""
    leaving: Operation[object] | None = None
    """Takes the process out of the store's line, should the waiter be gone and no other one be left."""


class Place:
    """One waiter's place in a queue.

    Its `state` is "waiting" while it is parked or makes its own attempt, "served" while another caller makes its
    attempt, and "woken" from a wake-up until the waiter uses it. Its `presence` is "here", then "left", and "gone" once
    leaving was carried out to its end; a place that has left may still be served.
    """

    __slots__ = (
        "ahead",
        "arrival",
        "began_at",
        "giver",
        "handed",
        "is_alone",
        "is_behind",
        "is_first",
        "is_heard",
        "leaving",
        "line",
        "notify",
        "offer",
        "presence",
        "released_at",
        "state",
    )

    def __init__(
        self, line: Line, arrival: int, notify: Callable[[], None], *, is_behind: bool, is_alone: bool
    ) -> None:
        """Create a place in `line`; `notify` makes the waiter check `Line.next_step` again."""
        self.line = line
        self.arrival = arrival
        self.notify = notify
        self.is_behind = is_behind
        self.is_alone = is_alone
        """Whether no other waiter of the process was there before it."""
        self.is_heard = False
        """Whether the channel's messages reached the process already when it joined, so that none can be missed."""
        self.state: Literal["waiting", "served", "woken"] = "waiting"
        self.presence: Literal["here", "left", "gone"] = "here"
        self.offer: Offer | None = None
        self.giver: object = None
        """The list of the caller that makes it, or made the last one."""
        self.handed: tuple[Any, float] | None = None
        """The answer to that attempt, and the local time just before it was sent."""
        self.leaving: Operation[object] | None = None
        """Takes the process out of the store's line, which the waiter must still do if it was the last one."""
        self.began_at = 0
        """When its last attempt began, as `Line.begin_attempt` counts."""
        self.ahead = 0
        """How many other processes were ahead of this one at its last attempt."""
        self.is_first = False
        """Whether this process became the first since the waiter began its last attempt."""
        self.released_at: float | None = None
        """When a release by another process woke it last, unless it has begun another attempt since."""

    @property
    def is_over(self) -> bool:
        """Return whether its waiter has left the queue and has nothing more to leave."""
        return self.presence == "gone" and self.leaving is None

    @property
    def woken(self) -> bool:
        """Return whether it has a wake-up that its waiter has not used."""
        return self.state == "woken"

    def take_handed(self) -> tuple[Any, float] | None:
        """Return the answer that came with the wake-up, once."""
        handed, self.handed = self.handed, None
        return handed


class Line:
    """First in, first out. It is not thread-safe; the sync and async wake-ups guard it."""

    __slots__ = (
        "_arrivals",
        "_due",
        "_handing_since",
        "_in_a_row",
        "_kept_at",
        "_members",
        "_passed_due",
        "_places",
        "_steps",
        "_unheard",
        "channel",
        "party",
    )

    def __init__(self, channel: str, party: str = "") -> None:
        """Create an empty queue for `channel`; `party` names the process in the line of all processes.

        The next queue for the channel has another name. So what takes this one out of the store's line, however late or
        often it runs, cannot take out the process that waits again.
        """
        self.channel = channel
        self.party = party
        self._places: deque[Place] = deque()
        self._arrivals = 0
        self._members: dict[Place, None] = {}
        self._unheard = False
        self._due = inf
        self._passed_due = inf
        """When the head tries although other processes are ahead."""
        self._in_a_row = 0
        self._handing_since = 0.0
        self._steps = 0
        """Counts the beginnings of attempts, and the answers that kept the process's place in the store's line."""
        self._kept_at = 0

    def __len__(self) -> int:
        """Return the number of waiters that joined and have not left; a woken one may come back to park."""
        return len(self._members)

    @property
    def due(self) -> float:
        """Return when the head tries without a message; infinity before a waiter has parked."""
        return self._due

    @property
    def parked(self) -> tuple[Place, ...]:
        """Return the places in the queue, in order, without those of waiters that are trying."""
        return tuple(self._places)

    def join(self, notify: Callable[[], None], noted: list[Place] | None = None) -> Place:
        """Join the queue at its end; the place is in `noted` first, so that an exception leaves none unknown."""
        place = Place(self, self._arrivals, notify, is_behind=bool(self._places), is_alone=not self._members)
        if noted is not None:
            noted.append(place)
        self._arrivals += 1
        self._members[place] = None
        self._places.append(place)
        return place

    def hear(self, now: float, said: str = "") -> None:
        """Handle a message: a release, or what `TURN` or `FIRST` begins."""
        ahead = self._places[0].ahead if self._places else 0
        if said.startswith(TURN):
            party = said.removeprefix(TURN)
            if party == self.party or (party == ALL and not ahead):
                self.signal()
            elif ahead:
                left_seconds = 0.0 if party == ALL else (LEFT_MS + 1) * 0.001
                self._pass_at(now + left_seconds + stagger(ahead))
        elif said.startswith(FIRST):
            party, _, lease_ms = said.removeprefix(FIRST).partition(" ")
            if party == self.party:
                self._be_first(now + int(lease_ms) * 0.001)
            else:  # the one before it has taken the lock
                self._pass_at(inf)
        elif said == TAKEN:
            self._pass_at(inf)
        elif ahead and said not in TOLD_TO_ALL:  # those ahead are to take it
            self._pass_at(min(self._passed_due, now + AHEAD_SECONDS + stagger(ahead)))
        else:
            if self._places and said not in TOLD_TO_ALL:
                self._places[0].released_at = now
            self.signal()

    def _pass_at(self, due: float) -> None:
        """Let the head try at `due` although other processes are ahead."""
        self._passed_due = due
        self._notify_head()

    def _be_first(self, due: float) -> None:
        self._passed_due, self._due = inf, due
        if self._places:
            self._places[0].ahead = 0
            self._places[0].is_first = True
        else:
            self._unheard = bool(self._members)

    def signal(self) -> None:
        """Wake the head; if all waiters are trying, the first to come back tries again, as its reply may be older."""
        self._unheard = not self._places and bool(self._members)
        if self._places:
            place = self._places[0]
            place.state = "woken"  # first: `mend` finds it
            self._pop_head()
            place.notify()
            self._notify_head()

    def mend(self) -> None:
        """Repair what an exception in the middle of a change left: the head tries, and all others check their state."""
        self._places = deque(place for place in self._places if place.state == "waiting")
        self.signal()
        for place in list(self._members):
            place.notify()

    def lets_others(self, now: float) -> bool:
        """Return whether to free the lock by a message alone, so that waiters of other processes get a chance."""
        if self._in_a_row == 0:
            self._handing_since = now
        if self._in_a_row < HAND_OFFS_MAX and now < self._handing_since + HANDING_SECONDS:
            return False
        self._in_a_row = 0
        return True

    def begin_attempt(self, place: Place) -> None:
        """Note that an attempt is about to be made for a waiter."""
        self._steps += 1
        place.began_at = self._steps

    def note_kept(self) -> None:
        """Note that an attempt which has ended kept the process's place in the store's line, or may have."""
        self._steps += 1
        self._kept_at = self._steps

    def may_be_in_line(self, place: Place) -> bool:
        """Return whether the process may have a place in the store's line although this waiter took what it waits for.

        Taking it removes the place; an attempt of another waiter that overlapped may have kept it again.
        """
        return self._kept_at > place.began_at

    def end_row(self) -> None:
        """Begin to count hand-offs again, because a waiter of another process has the lock, or is about to."""
        self._in_a_row = 0

    def take_offer(self, taken: list[Place] | None = None) -> Place | None:
        """Take the head out of the queue, to make its attempt, then call `hand`. None: it must try itself.

        The place is in `taken` first, so that an exception at any point leaves none without a call of `hand`.
        """
        if not self._places or self._places[0].offer is None:
            return None
        place = self._places[0]
        if taken is not None:
            taken.append(place)
        self.begin_attempt(place)
        place.giver = taken
        place.state = "served"
        self._pop_head()
        self._in_a_row += 1
        self._notify_head()
        return place

    def hand(self, place: Place, handed: tuple[Any, float] | None, taken: list[Place] | None = None) -> bool:
        """Wake a place with the answer to its attempt (None: it must try itself); return False if it has left before.

        An exception may interrupt it at any point; calling it again completes it, and returns the same. The waiter may
        have gone on and left after the first call, with the answer, or wait again, for another caller's attempt.
        `taken` is the list that `take_offer` got.
        """
        if place.state == "served" and place.giver is taken:
            if place.presence != "here":
                self.note_kept()
                self._expect(AT_ONCE)  # the attempt may have been refused for good, so that nobody else is woken
                return False
            place.handed, place.state = handed, "woken"  # without a call in between
        place.notify()
        return True

    def undoing(self, place: Place) -> tuple[Operation[object], ...]:
        """Return the operations that undo the attempt that was made for a place which has left."""
        offer = place.offer
        if offer is None:
            return ()
        if self._members or offer.leaving is None:
            return offer.undo
        return (*offer.undo, offer.leaving)

    def park(self, place: Place, due: float, offer: Offer | None = None) -> None:
        """Return to the queue after a failed attempt, in order of arrival, with the time of the next try.

        If a message came while the place was trying, it tries again at once and stays out of the queue: a second
        attempt made for it by another caller could take a lease that nobody would end. A release is left to the
        processes ahead, if the attempt has found some.
        """
        place.offer = offer
        place.ahead = 0 if place.is_first else place.ahead
        if place.state == "woken" and place.released_at is not None and place.ahead:
            self._passed_due = min(self._passed_due, place.released_at + AHEAD_SECONDS + stagger(place.ahead))
            place.state = "waiting"
        if place.state != "woken" and place not in self._places:
            index = 0
            while index < len(self._places) and self._places[index].arrival < place.arrival:
                index += 1
            self._places.insert(index, place)
        if self._unheard:
            self.signal()
        self._expect(due)

    def next_step(self, place: Place, now: float, deadline: float) -> bool | float:
        """Return True if a parked waiter must wake, False if its deadline has passed, or the time of the next check."""
        if place.state == "woken":
            place.state = "waiting"
            place.is_first, place.released_at = False, None
            return True
        if place.state == "served":
            return False if now >= deadline + LATE_SECONDS else deadline + LATE_SECONDS
        if now >= deadline:
            return False
        if self._places and self._places[0] is place:
            due = min(self._due, self._passed_due)
            if now >= due:
                place.is_first = False
                self._due = inf
                self._pop_head()
                self._notify_head()
                return True
            return min(due, deadline)
        return deadline

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the queue and pass the new `due` to the next waiter.

        If not `in_time`, the waiter was cancelled, so an attempt that another caller is making for it must be undone.
        An exception may interrupt it at any point; leaving again completes it.

        Returns whether no waiter of the process is left, and nobody makes this one's attempt.
        """
        self._members.pop(place, None)
        place.presence = "left"
        if in_time and place.offer is not None:
            place.offer = replace(place.offer, undo=place.offer.undo_late)
        had_turn = place not in self._places
        if not had_turn:
            self._places.remove(place)
        if self._places:  # if this one had its turn, the process has no place in the store's line until it asks again
            self._places[0].ahead = 0
        if place.state == "woken" or (had_turn and self._passed_due < inf):  # a release that it did not use
            self.signal()
            place.state = "waiting" if place.state == "woken" else place.state
        self._expect(due)
        return not self._members and place.state != "served"

    def _expect(self, due: float) -> None:
        # The earlier one wins, even if it passed unused while the next waiter was still subscribing: an extra attempt
        # is harmless, a late one delays the waiter.
        self._due = min(due, self._due)
        self._notify_head()

    def _pop_head(self) -> Place:
        self._passed_due = inf
        return self._places.popleft()

    def _notify_head(self) -> None:
        if self._places:
            self._places[0].notify()

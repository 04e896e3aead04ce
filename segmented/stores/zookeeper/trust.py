"""How long a session can be trusted. Pure: it receives events with their times, and sends nothing.

ZooKeeper ends a session from which it has heard nothing for the session time, and deletes the session's ephemeral
nodes. The client learns this only when it reaches the servers again. So a holder uses its own clock, counted from just
before it sent the last request that the leader answered:

- After two fifths of the session time, or without a connection, a lease is in doubt. The holder must not act on it. It
  is valid again when the session is confirmed.
- After the whole session time, minus 1 % and 2 ms for clocks that run at different rates, the lease is lost for good.

Why two fifths: a server that is not the leader reports its clients' contacts every half tick, and a session lasts two
ticks or more. So the leader may learn of a contact a quarter of the session time late. It may then know only of the
contact before, which is an eighth of the session time earlier with our interval, or a third with an idle client's.

An era is the time in which one session is assumed to be alive. It ends when the server says that the session is over,
or when our own clock says that it may be. Nothing begun in one era continues in the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import Final

TRUST_RATE: Final = 0.4
BEATS_PER_SESSION: Final = 8
DRIFT_RATE: Final = 0.01
DRIFT_SECONDS: Final = 0.002
NO_LINK: Final = -1


class Trust:
    """The trust in one session. Not thread-safe: the session guards it."""

    def __init__(self) -> None:
        self.era = 0
        self.link = 0
        """Number of connections so far."""
        self.is_connected = False
        self.session_seconds: float | None = None
        """The session time that the server granted; None while it is unknown."""
        self._contact_at = -inf

    def connect(self) -> None:
        """Record a new connection, to the same session or to the first one of a new era."""
        self.is_connected = True
        self.link += 1

    def disconnect(self) -> None:
        """Record that the connection is lost; the session may still be alive."""
        self.is_connected = False

    def end_session(self) -> None:
        """Record that the server has ended the session, or that the client was closed."""
        self.is_connected = False
        self.session_seconds = None
        self._end_era()

    def note_contact(self, era: int, asked_at: float) -> None:
        """Record that the leader has answered a request that was sent at `asked_at`."""
        if era == self.era:
            self._contact_at = max(self._contact_at, asked_at)

    def forget_contact(self) -> None:
        """Forget the last contact: nothing uses the session, so nothing confirms it, and that must not end the era."""
        self._contact_at = -inf

    def over_at(self) -> float:
        """Return the local time at which the session may be over; infinite if nothing uses it."""
        if self.session_seconds is None or self._contact_at == -inf:
            return inf
        return self._contact_at + self.session_seconds * (1 - DRIFT_RATE) - DRIFT_SECONDS

    def look_at_clock(self, now: float) -> None:
        """End the era if the session may be over by our own clock."""
        if now >= self.over_at():
            self._end_era()

    def trusted_until(self, link: int) -> float:
        """Return the local time until which a lease that was seen on connection `link` is valid."""
        if not self.is_connected or link != self.link or self.session_seconds is None:
            return -inf
        return self._contact_at + self.session_seconds * TRUST_RATE

    def beat_seconds(self) -> float:
        """Return the seconds between two confirmations."""
        return inf if self.session_seconds is None else self.session_seconds / BEATS_PER_SESSION

    def _end_era(self) -> None:
        self.era += 1
        self._contact_at = -inf


class Held(ABC):
    """A lease that the caretaker watches over."""

    holder_id: str
    path: str
    fencing_token: int
    watched_link: int = NO_LINK
    """The connection on which its node was last read and is watched."""

    @abstractmethod
    def is_lost_untold(self) -> bool:
        """Return whether the lease is lost and the holder is not notified yet."""

    @abstractmethod
    def tell(self) -> None:
        """Notify the holder that the lease is lost; may run the holder's code."""

    @abstractmethod
    def is_over(self) -> bool:
        """Return whether the lease needs no more care: it is released, or lost and the holder notified."""

    @abstractmethod
    def note_seen(self, link: int) -> None:
        """Record that the node existed, seen on connection `link`."""

    @abstractmethod
    def note_gone(self) -> None:
        """Record that the node no longer exists."""

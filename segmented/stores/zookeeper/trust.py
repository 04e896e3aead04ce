"""For how long a session may be believed in. Pure: it is told what happens and when, and sends nothing.

ZooKeeper ends a session that it has not heard of for the session time, and with it the session's ephemeral nodes. The
client learns of it only when it reaches the servers again, so a holder goes by its own clock, counted from before the
last request was sent that the leader has answered:

- from two fifths of the session time on, or while there is no connection, a lease is in doubt: not to be acted upon,
  and good again when the session is confirmed;
- at the whole session time, less 1 % and 2 ms for clocks that run at different rates, it is lost for good.

Why two fifths: a server other than the leader reports whom it has heard of every half tick, and a session lasts two
ticks or more, so the leader may know of a contact a quarter of the session time late; and it may then know of the one
before only, an eighth of the session time earlier with our rhythm, a third with that of an idle client.

An era is the time in which one session is believed to live. It ends when the server says that the session is over, or
when our own clock says that it may be; nothing that was begun in an era goes on in the next.
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
    """Not thread-safe by itself: the session guards it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.era = 0
        self.link = 0
        """How many connections there have been."""
        self.is_connected = False
        self.session_seconds: float | None = None
        """The session time that the server has granted; None until it was learned."""
        self._contact_at = -inf

    def connect(self) -> None:
        """Note a new connection to the same session, or to the first of a new era."""
        self.is_connected = True
        self.link += 1

    def disconnect(self) -> None:
        """Note that the connection is gone; the session may live on."""
        self.is_connected = False

    def end_session(self) -> None:
        """Note that the server has ended the session, or the client was closed."""
        self.is_connected = False
        self.session_seconds = None
        self._end_era()

    def note_contact(self, era: int, asked_at: float) -> None:
        """Note that the leader has answered a request that was sent at `asked_at`."""
        if era == self.era:
            self._contact_at = max(self._contact_at, asked_at)

    def forget_contact(self) -> None:
        """Nobody relies on the session any more, so nobody will confirm it either; that must not end the era."""
        self._contact_at = -inf

    def over_at(self) -> float:
        """Return the local time at which the session may be over; infinite when nobody relies on it."""
        if self.session_seconds is None or self._contact_at == -inf:
            return inf
        return self._contact_at + self.session_seconds * (1 - DRIFT_RATE) - DRIFT_SECONDS

    def look_at_clock(self, now: float) -> None:
        """End the era if the session may be over by our own clock."""
        if now >= self.over_at():
            self._end_era()

    def trusted_until(self, link: int) -> float:
        """Return the local time until which a lease that was seen on connection `link` may be acted upon."""
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
    """Somebody's lease, to be looked after."""

    holder_id: str
    path: str
    fencing_token: int
    watched_link: int = NO_LINK
    """The connection on which its node was last looked at, and is watched."""

    @abstractmethod
    def is_lost_untold(self) -> bool:
        """Is the lease lost, and the holder not told?"""

    @abstractmethod
    def tell(self) -> None:
        """Tell the holder that the lease is lost; may run the holder's code."""

    @abstractmethod
    def is_over(self) -> bool:
        """Is there nothing left to look after: released, or lost and told?"""

    @abstractmethod
    def note_seen(self, link: int) -> None:
        """Note that the node was there, on connection `link`."""

    @abstractmethod
    def note_gone(self) -> None:
        """Note that the node is gone."""

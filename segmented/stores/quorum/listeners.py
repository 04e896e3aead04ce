"""How a quorum hears that a lock is free: messages of any server, of which one release sends as many as it held votes.

`Heard` decides what a message means. The first one says that votes are being given back; only when a majority of the
servers has said so is an attempt likely to succeed. The last ones come when the next in line may be trying already, and
must wake nobody. Where some never come, the attempt is made a little later.
"""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING

from segmented.stores.quorum.tally import majority_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.plans.drivers import AsyncWakeups, Wakeups
    from segmented.plans.line import Line, Place


class Heard:
    """How often each server has sent a message for one channel, of late."""

    def __init__(self, servers: int, grace: float) -> None:
        """Take messages that are less than `grace` seconds apart for those of one release, or of one soon after."""
        self._majority = majority_of(servers)
        self._grace = grace
        self._counts = [0] * servers
        self._last_at = -inf
        self._begun: set[int] = set()

    def begin(self, server: int) -> None:
        """Count this server's messages from now on: the attempt that sees what earlier ones meant is yet to come."""
        self._begun.add(server)

    def forget(self) -> None:
        """Count anew."""
        self._counts = [0] * len(self._counts)

    @property
    def _releases(self) -> int:
        """Count the releases of which a majority has told."""
        return sorted(self._counts)[-self._majority]

    def note(self, line: Line, server: int, now: float) -> None:
        """Wake the head of the line now, after a while, or not at all."""
        if server not in self._begun:
            return  # who waits has yet to make the attempt that sees what this was about
        if now - self._last_at > self._grace:
            self.forget()
        self._last_at = now
        before = self._releases
        self._counts[server] += 1
        if self._releases > before:
            line.signal()
        elif self._counts[server] > before:  # the first ones of a release, of which one at least is of this majority
            line.leave(line.join(_nothing), now + self._grace)  # a place given up at once leaves word of the time


class ServerListener:
    """A place in one server's line for a channel, which passes each message on: to us, and to who else is in it."""

    def __init__(self, wakeups: Wakeups | AsyncWakeups, channel: str, hear: Callable[[], None]) -> None:
        """Call `hear` for each message, in the thread that brings it."""
        self._wakeups = wakeups
        self._channel = channel
        self._hear = hear
        self._guard = threading.Lock()
        self._place: Place | None = None
        self._is_closed = False
        self._join()

    def close(self) -> None:
        """Hear no more."""
        with self._guard:
            self._is_closed = True
            place, self._place = self._place, None
        if place is not None:
            self._wakeups.leave(place, inf)

    def _join(self) -> None:
        place = self._wakeups.join(self._channel)
        place.notify = self._look
        with self._guard:
            is_closed = self._is_closed
            if not is_closed:
                self._place = place
        if is_closed:
            self._wakeups.leave(place, inf)
        else:
            self._look()  # a message may have come in between

    def _look(self) -> None:
        with self._guard:
            place = self._place
            if place is None or not place.woken:
                return
            self._place = None
        self._wakeups.leave(place, inf)  # which wakes the next one in that line
        self._join()
        self._hear()


def _nothing() -> None:
    pass

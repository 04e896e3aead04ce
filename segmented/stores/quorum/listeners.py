"""How a quorum learns that a lock is free: by messages of the servers. A release sends one message for each vote.

`Heard` decides what a message means. The first message of a release says that votes are being given back. An attempt
is likely to succeed only when a majority of the servers has sent one. The last messages arrive when the next waiter may
be trying already, so they must not wake anyone. If some never arrive, the attempt is made a little later.
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
    """How many messages each server has sent recently for one channel."""

    def __init__(self, servers: int, grace: float) -> None:
        """Count messages less than `grace` seconds apart as those of one release, or of one soon after it."""
        self._majority = majority_of(servers)
        self._grace = grace
        self._counts = [0] * servers
        self._last_at = -inf
        self._begun: set[int] = set()

    def begin(self, server: int) -> None:
        """Count this server's messages from now on; the next attempt covers earlier ones."""
        self._begun.add(server)

    def forget(self) -> None:
        """Start counting again."""
        self._counts = [0] * len(self._counts)

    @property
    def _releases(self) -> int:
        """Return the number of releases that a majority has announced."""
        return sorted(self._counts)[-self._majority]

    def note(self, line: Line, server: int, now: float) -> None:
        """Wake the head of the line now, after a delay, or not at all."""
        if server not in self._begun:
            return  # the waiter has not yet made the attempt that covers this message
        if now - self._last_at > self._grace:
            self.forget()
        self._last_at = now
        before = self._releases
        self._counts[server] += 1
        if self._releases > before:
            line.signal()
        elif self._counts[server] > before:  # the first messages of a release; at least one is from this majority
            line.leave(line.join(_nothing), now + self._grace)  # this sets the time of the next attempt


class ServerListener:
    """A place in one server's line for a channel; it forwards each message to us and to the others in the line."""

    def __init__(self, wakeups: Wakeups | AsyncWakeups, channel: str, hear: Callable[[], None]) -> None:
        """Call `hear` for each message, in the thread that delivers it."""
        self._wakeups = wakeups
        self._channel = channel
        self._hear = hear
        self._guard = threading.Lock()
        self._place: Place | None = None
        self._is_closed = False
        self._join()

    def close(self) -> None:
        """Stop listening."""
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
            self._look()  # a message may have arrived in between

    def _look(self) -> None:
        with self._guard:
            place = self._place
            if place is None or not place.woken:
                return
            self._place = None
        self._wakeups.leave(place, inf)  # this wakes the next waiter in that line
        self._join()
        self._hear()


def _nothing() -> None:
    pass

"""The waiting lines for locks of a quorum, for threads and for asyncio.

An unreachable server does not delay a wait. A majority of subscriptions notices every release, because the holder had
the lock on a majority too. One release sends as many messages as it held votes.

`Heard` decides what a message means. The first message of a release says that votes are being given back. An attempt
is likely to succeed only when a majority of the servers has sent one. The last messages arrive when the next waiter may
be trying already, so they must not wake anyone. If some never arrive, the attempt is made a little later.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from segmented.errors import SegmentedError
from segmented.plans.tasks import begun
from segmented.stores.quorum.voting import majority_of
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.clock import Clock
    from segmented.plans.drivers import AsyncWakeups, Wakeups
    from segmented.plans.line import Line, Place
    from segmented.stores.quorum.lane import AsyncLane, ThreadLane


class AsyncQuorumWakeups(AsyncioWakeups):
    """The waiting lines of this event loop, woken by messages of any server."""

    def __init__(self, clock: Clock, lanes: Sequence[AsyncLane], *, grace: float) -> None:
        """Listen to the lanes' servers; one that does not answer within `grace` seconds counts as failed."""
        self._lanes = lanes
        self._grace = grace
        self._majority = majority_of(len(lanes))
        super().__init__(clock)

    def _start_anew(self) -> None:
        super()._start_anew()
        self._opening = threading.RLock()
        self._listeners: dict[str, tuple[Heard, list[ServerListener]]] = {}
        self._asking: set[asyncio.Task[bool]] = set()  # asyncio only

    async def listen(self, channel: str, deadline: float) -> None:
        """Return when a majority of the servers has confirmed the subscription, or no longer can."""
        with self._opening:
            if channel not in self._listeners:
                heard = Heard(len(self._lanes), self._grace)
                self._listeners[channel] = (
                    heard,
                    [
                        ServerListener(lane.store.wakeups, channel, partial(self._hear, channel, heard, server))
                        for server, lane in enumerate(self._lanes)
                    ],
                )
            heard, _ = self._listeners[channel]
            if channel in self._confirmed:
                return
        if await self._are_listening(channel, heard, deadline):
            with self._opening:
                if channel in self._listeners:
                    self._confirmed.add(channel)

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the line; nothing listens for an empty line. Return whether the process does not wait any more."""
        is_over = super().leave(place, due, in_time=in_time)
        channel = place.line.channel
        with self._opening:
            with self._guard:
                is_empty = channel not in self._lines
            _, listeners = self._listeners.pop(channel, (None, [])) if is_empty else (None, [])
            if is_empty:
                self._confirmed.discard(channel)
        for listener in listeners:
            listener.close()
        return is_over

    async def close(self) -> None:  # asyncio only
        """Stop all subscriptions."""
        self._enter_loop()
        for task in self._asking:
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking)

    async def _are_listening(self, channel: str, heard: Heard, deadline: float) -> bool:  # asyncio only
        until = min(deadline, self._clock.now() + self._grace)
        pending = {
            asyncio.create_task(begun(partial(self._ask, server, channel, heard))) for server in range(len(self._lanes))
        }
        self._asking |= pending
        for task in pending:
            task.add_done_callback(self._asking.discard)
        yes = 0
        while pending and yes < self._majority and (seconds := until - self._clock.now()) > 0:
            done, pending = await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            yes += sum(task.result() for task in done)
        return yes >= self._majority

    # threads: def _are_listening(self, channel: str, heard: Heard, deadline: float) -> bool:
    # threads:     count = _Count(self._majority, len(self._lanes))
    # threads:
    # threads:     def ask(server: int) -> None:
    # threads:         count.note(yes=self._ask(server, channel, heard))
    # threads:
    # threads:     for server, lane in enumerate(self._lanes):
    # threads:         lane.call(partial(ask, server))
    # threads:     until = min(deadline, self._clock.now() + self._grace)
    # threads:     count.over.wait(max(0.0, until - self._clock.now()))
    # threads:     return count.is_reached

    async def _ask(self, server: int, channel: str, heard: Heard) -> bool:
        """Subscribe to one server's messages; return whether it confirmed in time."""
        until = self._clock.now() + self._grace
        try:
            await self._lanes[server].store.wakeups.listen(channel, until)
        except SegmentedError:
            return False
        finally:
            with self._guard:
                heard.begin(server)
        return self._clock.now() < until

    def _hear(self, channel: str, heard: Heard, server: int) -> None:
        with self._guard:
            if line := self._lines.get(channel):
                heard.note(line, server, self._clock.now())


class _Count:
    """The number of servers that confirmed."""

    def __init__(self, majority: int, servers: int) -> None:
        self._guard = threading.RLock()
        self._majority = majority
        self._missing = servers
        self._yes = 0
        self.over = threading.Event()

    @property
    def is_reached(self) -> bool:
        return self._yes >= self._majority

    def note(self, *, yes: bool) -> None:
        with self._guard:
            self._missing -= 1
            self._yes += yes
            if self.is_reached or not self._missing:
                self.over.set()


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
        self._guard = threading.RLock()
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


# --- For threads: written by `make sync` from the classes above. ---


class ThreadQuorumWakeups(ThreadWakeups):
    """The waiting lines of this process, woken by messages of any server."""

    def __init__(self, clock: Clock, lanes: Sequence[ThreadLane], *, grace: float) -> None:
        """Listen to the lanes' servers; one that does not answer within `grace` seconds counts as failed."""
        self._lanes = lanes
        self._grace = grace
        self._majority = majority_of(len(lanes))
        super().__init__(clock)

    def _start_anew(self) -> None:
        super()._start_anew()
        self._opening = threading.RLock()
        self._listeners: dict[str, tuple[Heard, list[ServerListener]]] = {}

    def listen(self, channel: str, deadline: float) -> None:
        """Return when a majority of the servers has confirmed the subscription, or no longer can."""
        with self._opening:
            if channel not in self._listeners:
                heard = Heard(len(self._lanes), self._grace)
                self._listeners[channel] = (
                    heard,
                    [
                        ServerListener(lane.store.wakeups, channel, partial(self._hear, channel, heard, server))
                        for server, lane in enumerate(self._lanes)
                    ],
                )
            heard, _ = self._listeners[channel]
            if channel in self._confirmed:
                return
        if self._are_listening(channel, heard, deadline):
            with self._opening:
                if channel in self._listeners:
                    self._confirmed.add(channel)

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the line; nothing listens for an empty line. Return whether the process does not wait any more."""
        is_over = super().leave(place, due, in_time=in_time)
        channel = place.line.channel
        with self._opening:
            with self._guard:
                is_empty = channel not in self._lines
            _, listeners = self._listeners.pop(channel, (None, [])) if is_empty else (None, [])
            if is_empty:
                self._confirmed.discard(channel)
        for listener in listeners:
            listener.close()
        return is_over

    def _are_listening(self, channel: str, heard: Heard, deadline: float) -> bool:
        count = _Count(self._majority, len(self._lanes))

        def ask(server: int) -> None:
            count.note(yes=self._ask(server, channel, heard))

        for server, lane in enumerate(self._lanes):
            lane.call(partial(ask, server))
        until = min(deadline, self._clock.now() + self._grace)
        count.over.wait(max(0.0, until - self._clock.now()))
        return count.is_reached

    def _ask(self, server: int, channel: str, heard: Heard) -> bool:
        """Subscribe to one server's messages; return whether it confirmed in time."""
        until = self._clock.now() + self._grace
        try:
            self._lanes[server].store.wakeups.listen(channel, until)
        except SegmentedError:
            return False
        finally:
            with self._guard:
                heard.begin(server)
        return self._clock.now() < until

    def _hear(self, channel: str, heard: Heard, server: int) -> None:
        with self._guard:
            if line := self._lines.get(channel):
                heard.note(line, server, self._clock.now())

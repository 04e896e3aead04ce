"""The waiting lines for locks of a quorum, for threads and for asyncio.

An unreachable server does not delay a wait. A majority of subscriptions notices every release, because the holder had
the lock on a majority too.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

from segmented.errors import SegmentedError
from segmented.plans.tasks import begun
from segmented.stores.quorum.listeners import Heard, ServerListener
from segmented.stores.quorum.tally import majority_of
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.clock import Clock
    from segmented.plans.drivers import AsyncStore
    from segmented.plans.line import Place
    from segmented.stores.quorum.lane import ThreadLane


class ThreadQuorumWakeups(ThreadWakeups):
    """The waiting lines of this process, woken by messages of any server."""

    def __init__(self, clock: Clock, lanes: Sequence[ThreadLane], *, grace: float) -> None:
        """Listen through the lanes; a server that does not answer within `grace` seconds counts as failed."""
        super().__init__(clock)
        self._lanes = lanes
        self._grace = grace
        self._majority = majority_of(len(lanes))
        self._opening = threading.Lock()
        self._listeners: dict[str, tuple[Heard, list[ServerListener]]] = {}
        self._confirmed: set[str] = set()

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

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> None:
        """Leave the line; nothing listens for an empty line."""
        super().leave(place, due, in_time=in_time)
        channel = place.line.channel
        with self._opening:
            with self._guard:
                is_empty = channel not in self._lines
            _, listeners = self._listeners.pop(channel, (None, [])) if is_empty else (None, [])
            if is_empty:
                self._confirmed.discard(channel)
        for listener in listeners:
            listener.close()

    def _are_listening(self, channel: str, heard: Heard, deadline: float) -> bool:
        count = _Count(self._majority, len(self._lanes))
        for server, lane in enumerate(self._lanes):
            lane.call(partial(self._ask, server, channel, heard, count))
        until = min(deadline, self._clock.now() + self._grace)
        count.over.wait(max(0.0, until - self._clock.now()))
        return count.is_reached

    def _ask(self, server: int, channel: str, heard: Heard, count: _Count) -> None:
        """Subscribe to one server's messages, in its lane."""
        until = self._clock.now() + self._grace
        is_refused = False
        try:
            self._lanes[server].store.wakeups.listen(channel, until)
        except SegmentedError:
            is_refused = True
        with self._guard:
            heard.begin(server)
        count.note(yes=not is_refused and self._clock.now() < until)

    def _hear(self, channel: str, heard: Heard, server: int) -> None:
        with self._guard:
            if line := self._lines.get(channel):
                heard.note(line, server, self._clock.now())


class _Count:
    """The number of servers that confirmed."""

    def __init__(self, majority: int, servers: int) -> None:
        self._guard = threading.Lock()
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


class AsyncQuorumWakeups(AsyncioWakeups):
    """The waiting lines of this event loop, woken by messages of any server."""

    def __init__(self, clock: Clock, stores: Sequence[AsyncStore], *, grace: float) -> None:
        """Listen to the servers; one that does not answer within `grace` seconds counts as failed."""
        super().__init__(clock)
        self._stores = stores
        self._grace = grace
        self._listeners: dict[str, tuple[Heard, list[ServerListener]]] = {}
        self._confirmed: set[str] = set()
        self._asking: set[asyncio.Task[bool]] = set()

    async def listen(self, channel: str, deadline: float) -> None:
        """Return when a majority of the servers has confirmed the subscription, or no longer can."""
        if channel not in self._listeners:
            heard = Heard(len(self._stores), self._grace)
            self._listeners[channel] = (
                heard,
                [
                    ServerListener(store.wakeups, channel, partial(self._hear, channel, heard, server))
                    for server, store in enumerate(self._stores)
                ],
            )
        heard, _ = self._listeners[channel]
        if channel in self._confirmed:
            return
        if await self._are_listening(channel, heard, deadline) and channel in self._listeners:
            self._confirmed.add(channel)

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> None:
        """Leave the line; nothing listens for an empty line."""
        super().leave(place, due, in_time=in_time)
        channel = place.line.channel
        if channel not in self._lines and channel in self._listeners:
            self._confirmed.discard(channel)
            _, listeners = self._listeners.pop(channel)
            for listener in listeners:
                listener.close()

    async def close(self) -> None:
        """Stop all subscriptions."""
        for task in self._asking:
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking)

    async def _are_listening(self, channel: str, heard: Heard, deadline: float) -> bool:
        until, majority = min(deadline, self._clock.now() + self._grace), majority_of(len(self._stores))
        pending = {
            asyncio.create_task(begun(partial(self._ask, server, channel, heard)))
            for server in range(len(self._stores))
        }
        self._asking |= pending
        for task in pending:
            task.add_done_callback(self._asking.discard)
        yes = 0
        while pending and yes < majority and (seconds := until - self._clock.now()) > 0:
            done, pending = await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            yes += sum(task.result() for task in done)
        return yes >= majority

    async def _ask(self, server: int, channel: str, heard: Heard) -> bool:
        """Subscribe to one server's messages; return whether it confirmed in time."""
        until = self._clock.now() + self._grace
        try:
            await self._stores[server].wakeups.listen(channel, until)
        except SegmentedError:
            return False
        finally:
            heard.begin(server)
        return self._clock.now() < until

    def _hear(self, channel: str, heard: Heard, server: int) -> None:
        if line := self._lines.get(channel):
            heard.note(line, server, self._clock.now())

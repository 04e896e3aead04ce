"""Wake-ups from Redis for asyncio: as `listener`, with a task instead of its thread.

One event loop runs everything, so no guard is needed. Still, only the listener's task uses the subscription, because a
redis-py PubSub that two tasks reconnect at once loses track of its channels.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import ConnectionError as RedisConnectionError, RedisError

from segmented.errors import SegmentedError, StoreUnavailable
from segmented.plans.tasks import Alarm, begun
from segmented.protocol.wire import readable, text
from segmented.stores.redis.listener import (
    LINGER_SECONDS,
    LISTEN_TIMEOUT,
    MOVED,
    PING_SECONDS,
    POLL_SECONDS,
    RECONNECT_SECONDS,
    SILENT,
    Listener,
    Warned,
)
from segmented.stores.wakeups import AsyncioWakeups

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio.client import PubSub

    from segmented.clock import Clock
    from segmented.stores.redis.addresses import Host
    from segmented.stores.redis.async_cluster_link import AsyncClusterLink
    from segmented.stores.redis.async_link import AsyncLink

CLOSE_SECONDS: Final = 3.0
CANCEL_SECONDS: Final = 0.1


class AsyncRedisWakeups(AsyncioWakeups):
    """The waiting lines of this event loop, woken by messages on their channels."""

    def __init__(
        self, subscribe: Callable[[Host | None], PubSub], clock: Clock, link: AsyncLink | AsyncClusterLink
    ) -> None:
        """Do not connect yet; `subscribe` creates subscriptions, and messages to the listener go through `link`."""
        self._link = link
        self._subscribe = subscribe
        self._is_closed = False
        super().__init__(clock)

    def _start_anew(self) -> None:
        super()._start_anew()
        self._listeners: dict[Host | None, Listener[asyncio.Task[None]]] = {}
        self._listener_of: dict[str, Listener[asyncio.Task[None]]] = {}
        self._wanted: dict[str, asyncio.Event] = {}
        self._asked: set[str] = set()
        self._missed: set[str] = set()  # channels on which a release may have been missed
        self._used_at: dict[str, float] = {}

    async def listen(self, channel: str, deadline: float) -> None:
        """Return once the server has confirmed the subscription; at once, without one, if this is closed."""
        self._enter_loop()
        if self._is_closed:
            return
        self._used_at[channel] = self._clock.now()
        if channel in self._confirmed:
            return
        is_first = channel not in self._wanted
        confirmed = self._wanted.setdefault(channel, asyncio.Event())
        homes = await self._link.homes([channel])
        listener = self._assign(channel, homes[channel])
        if is_first:
            await self._call(listener, deadline)
        try:
            with Alarm(min(LISTEN_TIMEOUT, max(0.0, deadline - self._clock.now()))):
                await confirmed.wait()
        except TimeoutError as error:
            if channel in self._wanted:
                self._missed.add(channel)  # the caller may continue without it
            if self._clock.now() >= deadline:
                return  # the wait is over: the parked waiter finds its own deadline passed
            message = f"no subscription to {channel} within {LISTEN_TIMEOUT:g} s"
            raise StoreUnavailable(message) from error

    async def close(self) -> None:
        """End the listeners and their connections, for good."""
        self._enter_loop()
        self.close_soon()
        tasks = [listener.runner for listener in self._listeners.values() if listener.runner is not None]
        self._listeners, self._listener_of = {}, {}
        end = self._clock.now() + CLOSE_SECONDS
        while (living := [task for task in tasks if not task.done()]) and self._clock.now() < end:
            for task in living:
                task.cancel()  # repeatedly: a driver timeout at the same moment may swallow a cancellation
            await asyncio.wait(living, timeout=CANCEL_SECONDS)

    def close_soon(self) -> None:
        """Let the listeners end when they next look, within POLL_SECONDS. A finalizer may call it at any point."""
        self._is_closed = True

    async def _call(self, listener: Listener[Any], deadline: float) -> None:
        with suppress(RedisError, OSError, SegmentedError):  # the listener checks its list a little later anyway
            await self._link.publish(listener.own_channel, "look", deadline=deadline, at=listener.home)

    def _assign(self, channel: str, home: Host | None) -> Listener[asyncio.Task[None]]:
        """Return the running listener of a channel: its own, or that of its server."""
        listener = self._listener_of.get(channel) or self._listeners.get(home)
        if listener is None:
            listener = self._listeners[home] = Listener(home, self._clock.now() + LINGER_SECONDS)
        self._listener_of[channel] = listener
        if listener.runner is None:
            self._start(listener)
        return listener

    # --- the listener's task ---

    def _start(self, listener: Listener[asyncio.Task[None]]) -> None:
        listener.runner = asyncio.create_task(begun(partial(self._run, listener)), name="segmented-listener")
        listener.runner.add_done_callback(partial(self._note_end, listener))

    def _note_end(self, listener: Listener[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        """Start again if somebody cancelled the task, as a program does that cancels all tasks it finds."""
        listener.runner = None
        if not self._is_needed(listener):
            return
        self._lose(listener)
        if self._lines and not task.get_loop().is_closed():
            self._start(listener)

    async def _run(self, listener: Listener[asyncio.Task[None]]) -> None:
        warned = Warned()
        subscription: PubSub | None = None
        this = asyncio.current_task()
        try:
            # the driver may treat a cancellation as its own error; the task would then outlive the event loop
            while this is not None and not this.cancelling() and self._is_needed(listener):
                if subscription is None and self._is_over(listener):
                    break
                try:
                    subscription = subscription or self._subscribe(listener.home)
                    await self._listen_once(listener, subscription)
                except Exception as error:  # noqa: BLE001  # even an unreadable message: all waiters depend on this task
                    warned.note(error)
                    await asyncio.sleep(RECONNECT_SECONDS)
                    await _closed(subscription)
                    subscription = None
                    await self._ask_again(listener)
        finally:
            await _closed(subscription)

    def _is_needed(self, listener: Listener[Any]) -> bool:
        return not self._is_closed and self._listeners.get(listener.home) is listener

    def _is_over(self, listener: Listener[Any]) -> bool:
        """Return whether a node's listener has no channels; nothing finds it any more."""
        if listener.home is None or listener in self._listener_of.values():
            return False
        if self._listeners.get(listener.home) is listener:
            del self._listeners[listener.home]
        return True

    async def _listen_once(self, listener: Listener[Any], subscription: PubSub) -> None:
        channels = [
            channel
            for channel in self._wanted
            if channel not in self._asked and self._listener_of.get(channel) is listener
        ]
        self._asked.update(channels)
        if listener.home is None:
            if not subscription.subscribed or channels:
                await subscription.subscribe(listener.own_channel, *channels)
        else:
            if not subscription.subscribed:
                await subscription.subscribe(listener.own_channel)
            for channel in channels:  # one by one: a command may name channels of one slot only
                await subscription.ssubscribe(channel)
        message = await subscription.get_message(timeout=POLL_SECONDS)
        await self._check_life(listener, subscription, is_heard=message is not None)
        if message is not None:
            self._on_message(listener, message)
        if self._clock.now() >= listener.next_sweep:
            listener.next_sweep = self._clock.now() + LINGER_SECONDS
            await self._give_up_idle(listener, subscription)

    async def _check_life(
        self,
        listener: Listener[Any],
        subscription: Any,  # noqa: ANN401  # its `ping` is untyped
        *,
        is_heard: bool,
    ) -> None:
        """Raise if nothing has arrived since a PING: a server that is cut off does not close its connections."""
        now = self._clock.now()
        if is_heard or not self._lines:
            listener.heard_at = now
        elif listener.pinged_at > listener.heard_at:
            raise RedisConnectionError(SILENT)
        elif now >= listener.heard_at + PING_SECONDS:
            await subscription.ping()
            listener.pinged_at = now

    def _on_message(self, listener: Listener[Any], message: dict[str, Any]) -> None:
        channel = text(message["channel"])
        if message["type"] in {"message", "smessage"}:
            said = readable(message["data"])
            if not self._is_own_release(said):
                self.hear(channel, said)
        elif message["type"] in {"unsubscribe", "sunsubscribe"}:
            if channel in self._confirmed:  # otherwise this process has asked for it
                raise RedisConnectionError(MOVED)
        elif message["type"] in {"subscribe", "ssubscribe"} and self._is_ours(listener, channel):
            self._confirmed.add(channel)
            self._asked.discard(channel)
            confirmed = self._wanted.pop(channel, None)
            is_missed = confirmed is None or channel in self._missed  # None: the driver has reconnected
            self._missed.discard(channel)
            if confirmed is not None:
                confirmed.set()
            if is_missed:  # a release may have been missed; otherwise the caller of `listen` tries now anyway
                self.signal(channel)

    def _is_ours(self, listener: Listener[Any], channel: str) -> bool:
        """Return whether a confirmation counts. The driver also makes subscriptions again that were given up."""
        is_wanted = channel in self._asked or channel in self._confirmed
        return is_wanted and self._listener_of.get(channel) is listener

    def _lose(self, listener: Listener[asyncio.Task[None]]) -> list[str]:
        """Note that its subscriptions are gone; return the channels to which it must subscribe again."""
        listener.heard_at = self._clock.now()
        channels = {channel for channel, its in self._listener_of.items() if its is listener}
        self._asked -= channels
        self._confirmed -= channels
        waited_for = channels & self._lines.keys()
        for channel in waited_for:
            self._wanted.setdefault(channel, asyncio.Event())
        self._missed |= waited_for
        for channel in channels - self._wanted.keys():
            del self._listener_of[channel]
        return [channel for channel in channels if channel in self._wanted]

    async def _ask_again(self, listener: Listener[asyncio.Task[None]]) -> None:
        """Give each lost channel to the listener of the server that now has it."""
        others = set()
        if lost := self._lose(listener):
            for channel, home in (await self._link.homes(lost, apart_from=listener.home)).items():
                if self._listener_of.get(channel) is listener:
                    del self._listener_of[channel]
                    others.add(self._assign(channel, home))
        for other in others - {listener}:
            await self._call(other, self._clock.now() + POLL_SECONDS)

    async def _give_up_idle(self, listener: Listener[Any], subscription: PubSub) -> None:
        oldest = self._clock.now() - LINGER_SECONDS
        idle = [
            channel
            for channel in self._confirmed
            if channel not in self._lines
            and self._listener_of.get(channel) is listener
            and self._used_at.get(channel, 0.0) < oldest
        ]
        self._confirmed.difference_update(idle)
        for channel in idle:
            self._used_at.pop(channel, None)
            del self._listener_of[channel]
        if listener.home is None and idle:
            await subscription.unsubscribe(*idle)
        for channel in idle if listener.home is not None else ():
            await subscription.sunsubscribe(channel)


async def _closed(subscription: PubSub | None) -> None:
    if subscription is not None:
        with suppress(RedisError, OSError):
            await subscription.aclose()

"""Wake-ups from Redis for asyncio: as `listener`, with a task instead of its thread.

One event loop runs everything, so no guard is needed. Still, only the listener's task uses the subscription, because a
redis-py PubSub that two tasks reconnect at once loses track of its channels.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from redis.exceptions import ConnectionError as RedisConnectionError, RedisError

from segmented.errors import StoreUnavailable
from segmented.keys import listener_channel
from segmented.plans.tasks import Alarm, begun
from segmented.protocol.wire import readable, text
from segmented.stores.redis.listener import (
    LINGER_SECONDS,
    LISTEN_TIMEOUT,
    PING_SECONDS,
    POLL_SECONDS,
    RECONNECT_SECONDS,
    SILENT,
)
from segmented.stores.wakeups import AsyncioWakeups

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio.client import PubSub

    from segmented.clock import Clock
    from segmented.stores.redis.async_cluster_link import AsyncClusterLink
    from segmented.stores.redis.async_link import AsyncLink

CLOSE_SECONDS: Final = 3.0
CANCEL_SECONDS: Final = 0.1


class AsyncRedisWakeups(AsyncioWakeups):
    """The waiting lines of this event loop, woken by messages on their channels."""

    def __init__(self, subscribe: Callable[[], PubSub], clock: Clock, link: AsyncLink | AsyncClusterLink) -> None:
        """Do not connect yet; `subscribe` creates subscriptions, and messages to the listener go through `link`."""
        super().__init__(clock)
        self._link = link
        self._subscribe = subscribe
        self._own_channel = listener_channel(uuid4().hex)
        self._wanted: dict[str, asyncio.Event] = {}
        self._asked: set[str] = set()
        self._missed: set[str] = set()  # channels on which a release may have been missed
        self._used_at: dict[str, float] = {}
        self._next_sweep = clock.now() + LINGER_SECONDS
        self._heard_at = self._pinged_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def listen(self, channel: str, deadline: float) -> None:
        """Return once the server has confirmed the subscription."""
        self._used_at[channel] = self._clock.now()
        if channel in self._confirmed:
            return
        confirmed = self._wanted.setdefault(channel, asyncio.Event())
        if self._task is None:
            self._start()
        with suppress(RedisError, OSError):  # the listener checks its list a little later anyway
            await self._link.publish(self._own_channel, "look", deadline=deadline)
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
        """End the listener and its connection."""
        task, self._task = self._task, None
        end = self._clock.now() + CLOSE_SECONDS
        while task is not None and not task.done() and self._clock.now() < end:
            task.cancel()  # repeatedly: a driver timeout at the same moment may swallow a cancellation
            await asyncio.wait([task], timeout=CANCEL_SECONDS)

    # --- the listener's task ---

    def _start(self) -> None:
        self._task = asyncio.create_task(begun(self._run), name="segmented-listener")
        self._task.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """Start again if somebody cancelled the task, as a program does that cancels all tasks it finds."""
        if self._task is not task:
            return  # it was closed
        self._task = None
        self._ask_again()
        if self._lines and not task.get_loop().is_closed():
            self._start()

    async def _run(self) -> None:
        subscription: PubSub | None = None
        this = asyncio.current_task()
        try:
            # the driver may treat a cancellation as its own error; the task would then outlive the event loop
            while this is not None and not this.cancelling():
                try:
                    subscription = subscription or self._subscribe()
                    await self._listen_once(subscription)
                except Exception:  # noqa: BLE001  # even an unreadable message: all waiters depend on this task
                    await asyncio.sleep(RECONNECT_SECONDS)
                    await _closed(subscription)
                    subscription = None
                    self._ask_again()
        finally:
            await _closed(subscription)

    async def _listen_once(self, subscription: PubSub) -> None:
        channels = [channel for channel in self._wanted if channel not in self._asked]
        self._asked.update(channels)
        if not subscription.subscribed or channels:
            await subscription.subscribe(self._own_channel, *channels)
        message = await subscription.get_message(timeout=POLL_SECONDS)
        await self._check_life(subscription, is_heard=message is not None)
        if message is not None:
            self._on_message(message)
        if self._clock.now() >= self._next_sweep:
            self._next_sweep = self._clock.now() + LINGER_SECONDS
            await self._give_up_idle(subscription)

    async def _check_life(self, subscription: Any, *, is_heard: bool) -> None:  # noqa: ANN401  # its `ping` is untyped
        """Raise if nothing has arrived since a PING: a server that is cut off does not close its connections."""
        now = self._clock.now()
        if is_heard or not self._lines:
            self._heard_at = now
        elif self._pinged_at > self._heard_at:
            raise RedisConnectionError(SILENT)
        elif now >= self._heard_at + PING_SECONDS:
            await subscription.ping()
            self._pinged_at = now

    def _on_message(self, message: dict[str, Any]) -> None:
        channel = text(message["channel"])
        if message["type"] == "message":
            said = readable(message["data"])
            if not self._is_own_release(said):
                self.hear(channel, said)
        elif message["type"] == "subscribe":
            self._confirmed.add(channel)
            self._asked.discard(channel)
            confirmed = self._wanted.pop(channel, None)
            is_missed = confirmed is None or channel in self._missed  # None: the driver has reconnected
            self._missed.discard(channel)
            if confirmed is not None:
                confirmed.set()
            if is_missed:  # a release may have been missed; otherwise the caller of `listen` tries now anyway
                self.signal(channel)

    def _ask_again(self) -> None:
        self._heard_at = self._clock.now()
        self._asked.clear()
        self._confirmed.clear()
        for channel in self._lines:
            self._wanted.setdefault(channel, asyncio.Event())
        self._missed.update(self._lines)

    async def _give_up_idle(self, subscription: PubSub) -> None:
        oldest = self._clock.now() - LINGER_SECONDS
        idle = [
            channel
            for channel in self._confirmed
            if channel not in self._lines and channel != self._own_channel and self._used_at.get(channel, 0.0) < oldest
        ]
        self._confirmed.difference_update(idle)
        for channel in idle:
            self._used_at.pop(channel, None)
        if idle:
            await subscription.unsubscribe(*idle)


async def _closed(subscription: PubSub | None) -> None:
    if subscription is not None:
        with suppress(RedisError, OSError):
            await subscription.aclose()

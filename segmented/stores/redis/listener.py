"""Wake-ups from Redis: one subscription connection per process and server, opened by the first wait.

Only the listener's task or thread uses the subscription, because a redis-py PubSub must not be shared: one that two
tasks reconnect at once loses track of its channels. A waiter that needs a channel puts it on a list and wakes the
listener with a message on the listener's private channel. The listener unsubscribes from channels that nobody has
waited on for a while, so that a thousand locks do not leave a thousand subscriptions.

A node of a cluster sends the messages of a slot only to its own subscribers (SSUBSCRIBE), so each node has a listener
of its own. When a node fails, or says that a slot has moved (by MOVED, or because it ends a subscription), its listener
reads the map again. It gives each of its channels to the listener of the node that now serves it, which may be itself.
A listener without channels then ends.

The state has a guard, which threads need; a task holds it over no `await`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from uuid import uuid4

from redis.exceptions import ConnectionError as RedisConnectionError, NoPermissionError, RedisError

from segmented.errors import SegmentedError, StoreUnavailable
from segmented.keys import listener_channel
from segmented.plans.tasks import Alarm, begun
from segmented.protocol.wire import UNKNOWN_COMMAND, readable, text
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups, Wake

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio.client import PubSub as AsyncPubSub
    from redis.client import PubSub

    from segmented.clock import Clock
    from segmented.stores.redis.addresses import Host
    from segmented.stores.redis.cluster_link import AsyncClusterLink, ClusterLink
    from segmented.stores.redis.link import AsyncLink, Link

AsyncConfirmed = asyncio.Event
Confirmed = Wake
CLOSE_SECONDS: Final = 3.0
CANCEL_SECONDS: Final = 0.1
POLL_SECONDS: Final = 1.0
"""Longest time that the listener blocks before it checks its duties; a message wakes it immediately."""
LINGER_SECONDS: Final = 5.0
LISTEN_TIMEOUT: Final = 10.0
RECONNECT_SECONDS: Final = 0.2
PING_SECONDS: Final = 3.0
"""Seconds without a message after which a waiting process checks that its connection is still alive."""
SILENT: Final = "the subscription's server no longer answers"
MOVED: Final = "the server has ended the subscription, as it does when another node serves its slot"
REFUSED: Final = (
    f"the server refuses subscriptions, so a waiting call notices a release up to {LISTEN_TIMEOUT:g} s late; "
    "an account needs +subscribe and &seg:listener:*"
)
LOGGER: Final = logging.getLogger("segmented.stores")
RunnerT = TypeVar("RunnerT")


@dataclass(slots=True, eq=False)
class Listener(Generic[RunnerT]):
    """One subscription: at which server it is, and the thread or task that reads it."""

    home: Host | None
    """A node of a cluster; None is the one server."""
    next_sweep: float
    own_channel: str = field(default_factory=lambda: listener_channel(uuid4().hex))
    heard_at: float = 0.0
    pinged_at: float = 0.0
    runner: RunnerT | None = None


class Warned:
    """Logs once that the server refuses subscriptions, if it did not tell so at the first contact."""

    def __init__(self) -> None:
        self._has_warned = False

    def note(self, error: Exception) -> None:
        """Log a refusal, unless one was logged."""
        is_refused = isinstance(error, NoPermissionError) or UNKNOWN_COMMAND.match(str(error)) is not None
        if is_refused and not self._has_warned:
            self._has_warned = True
            LOGGER.warning("%s: %s", REFUSED, error)


class AsyncRedisWakeups(AsyncioWakeups):
    """The waiting lines of this event loop, woken by messages on their channels."""

    def __init__(
        self, subscribe: Callable[[Host | None], AsyncPubSub], clock: Clock, link: AsyncLink | AsyncClusterLink
    ) -> None:
        """Do not connect yet; `subscribe` creates subscriptions, and messages to the listener go through `link`."""
        self._link = link
        self._subscribe = subscribe
        self._is_closed = False
        super().__init__(clock)

    def _start_anew(self) -> None:
        super()._start_anew()
        self._state = threading.RLock()
        self._listeners: dict[Host | None, Listener[asyncio.Task[None]]] = {}
        self._listener_of: dict[str, Listener[asyncio.Task[None]]] = {}
        self._wanted: dict[str, list[AsyncConfirmed]] = {}
        self._asked: set[str] = set()
        self._missed: set[str] = set()  # channels on which a release may have been missed
        self._used_at: dict[str, float] = {}

    async def listen(self, channel: str, deadline: float) -> None:
        """Return once the server has confirmed the subscription; at once, without one, if this is closed."""
        self._enter_loop()  # asyncio only
        if self._is_closed:
            return
        homes = {} if channel in self._confirmed else await self._link.homes([channel])
        with self._state:
            self._used_at[channel] = self._clock.now()
            if channel in self._confirmed:
                return
            confirmed = AsyncConfirmed()
            waiting = self._wanted.setdefault(channel, [])
            is_first = not waiting
            waiting.append(confirmed)
            listener = self._assign(channel, homes.get(channel))
        if is_first:
            await self._call(listener, "look", deadline)
        if not await async_is_set(confirmed, min(LISTEN_TIMEOUT, max(0.0, deadline - self._clock.now()))):
            with self._state:
                if channel in self._wanted:
                    self._missed.add(channel)  # the caller may continue without it
            if self._clock.now() >= deadline:
                return  # the wait is over: the parked waiter finds its own deadline passed
            raise StoreUnavailable(f"no subscription to {channel} within {LISTEN_TIMEOUT:g} s")

    async def close(self) -> None:
        """End the listeners and their connections, for good."""
        self._enter_loop()  # asyncio only
        self.close_soon()
        with self._state:
            listeners = list(self._listeners.values())
        tasks = [listener.runner for listener in listeners if listener.runner is not None]  # asyncio only
        self._listeners, self._listener_of = {}, {}  # asyncio only
        end = self._clock.now() + CLOSE_SECONDS  # asyncio only
        while (living := [task for task in tasks if not task.done()]) and self._clock.now() < end:  # asyncio only
            for task in living:
                task.cancel()  # repeatedly: a driver timeout at the same moment may swallow a cancellation
            await asyncio.wait(living, timeout=CANCEL_SECONDS)
        # threads: for listener in listeners:
        # threads:     thread = listener.runner
        # threads:     if thread is not None:
        # threads:         self._call(listener, "stop", self._clock.now() + POLL_SECONDS)
        # threads:         thread.join(POLL_SECONDS * 3)

    def close_soon(self) -> None:
        """Let the listeners end when they next look, within POLL_SECONDS. A finalizer may call it at any point."""
        self._is_closed = True

    async def _call(self, listener: Listener[Any], word: str, deadline: float) -> None:
        with suppress(RedisError, OSError, SegmentedError):  # the listener checks its list a little later anyway
            await self._link.publish(listener.own_channel, word, deadline=deadline, at=listener.home)

    def _assign(self, channel: str, home: Host | None) -> Listener[asyncio.Task[None]]:
        """Return the running listener of a channel: its own, or that of its server."""
        listener = self._listener_of.get(channel) or self._listeners.get(home)
        if listener is None:  # in one step, because a signal handler may come here, too
            listener = self._listeners.setdefault(home, Listener(home, self._clock.now() + LINGER_SECONDS))
        self._listener_of[channel] = listener
        is_dead = listener.runner is None  # asyncio only
        # threads: is_dead = listener.runner is None or not listener.runner.is_alive()
        if is_dead:
            self._start(listener)
        return listener

    # --- the listener's task or thread ---

    def _start(self, listener: Listener[asyncio.Task[None]]) -> None:
        run = begun(partial(self._run, listener))  # asyncio only
        listener.runner = asyncio.create_task(run, name="segmented-listener")  # asyncio only
        listener.runner.add_done_callback(partial(self._note_end, listener))  # asyncio only
        # threads: thread = threading.Thread(target=self._run, args=(listener,), name="segmented-listener", daemon=True)
        # threads: listener.runner = thread
        # threads: thread.start()

    def _note_end(self, listener: Listener[asyncio.Task[None]], task: asyncio.Task[None]) -> None:  # asyncio only
        """Start again if somebody cancelled the task, as a program does that cancels all tasks it finds."""
        listener.runner = None
        if self._is_closed or self._listeners.get(listener.home) is not listener:
            return
        self._lose(listener)
        if self._lines and not task.get_loop().is_closed():
            self._start(listener)

    async def _run(self, listener: Listener[asyncio.Task[None]]) -> None:
        warned = Warned()
        subscription: AsyncPubSub | None = None
        try:
            while self._is_needed(listener) and (subscription or not self._is_over(listener)):
                try:
                    subscription = subscription or self._subscribe(listener.home)
                    await self._listen_once(listener, subscription)
                except Exception as error:  # noqa: BLE001  # even an unreadable message: all waiters depend on it
                    warned.note(error)
                    await asyncio.sleep(RECONNECT_SECONDS)
                    await async_closed(subscription)
                    subscription = None
                    await self._ask_again(listener)
        finally:
            await async_closed(subscription)
            # threads: if self._is_needed(listener):
            # threads:     self._lose(listener)  # something ended the thread: start again
            # threads:     with self._state:
            # threads:         listener.runner = None
            # threads:         if self._lines:
            # threads:             self._start(listener)

    def _is_needed(self, listener: Listener[asyncio.Task[None]]) -> bool:
        """Return whether its task or thread is to go on. A signal handler may have started another one meanwhile."""
        this = asyncio.current_task()
        if this is not None and this.cancelling():  # asyncio only
            # The driver may treat a cancellation as its own error; the task would then outlive the event loop.
            return False
        # threads: if listener.runner is not this:  # asyncio: an eager task runs before it is the runner
        # threads:     return False
        return not self._is_closed and self._listeners.get(listener.home) is listener

    def _is_over(self, listener: Listener[Any]) -> bool:
        """Return whether a node's listener has no channels; nothing finds it any more."""
        with self._state:
            if listener.home is None or listener in self._listener_of.values():
                return False
            if self._listeners.get(listener.home) is listener:
                del self._listeners[listener.home]
        return True

    async def _listen_once(self, listener: Listener[Any], subscription: AsyncPubSub) -> None:
        with self._state:
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
        elif message["type"] in {"subscribe", "ssubscribe"}:
            with self._state:
                if not self._is_ours(listener, channel):
                    return
                self._confirmed.add(channel)
                self._asked.discard(channel)
                confirmed = self._wanted.pop(channel, None)
                is_missed = confirmed is None or channel in self._missed  # None: the driver has reconnected
                self._missed.discard(channel)
            for each in confirmed or ():
                each.set()
            if is_missed:  # a release may have been missed; otherwise the caller of `listen` tries now anyway
                self.signal(channel)

    def _is_ours(self, listener: Listener[Any], channel: str) -> bool:
        """Return whether a confirmation counts. The driver also makes subscriptions again that were given up."""
        is_wanted = channel in self._asked or channel in self._confirmed
        return is_wanted and self._listener_of.get(channel) is listener

    def _lose(self, listener: Listener[asyncio.Task[None]]) -> list[str]:
        """Note that its subscriptions are gone; return the channels to which it must subscribe again."""
        listener.heard_at = self._clock.now()
        with self._guard, self._state:
            channels = {channel for channel, its in self._listener_of.items() if its is listener}
            self._asked -= channels
            self._confirmed -= channels
            waited_for = channels & self._lines.keys()
            for channel in waited_for:
                self._wanted.setdefault(channel, [])
            self._missed |= waited_for
            for channel in channels - self._wanted.keys():
                del self._listener_of[channel]
            return [channel for channel in channels if channel in self._wanted]

    async def _ask_again(self, listener: Listener[asyncio.Task[None]]) -> None:
        """Give each lost channel to the listener of the server that now has it."""
        others = set()
        if lost := self._lose(listener):
            homes = await self._link.homes(lost, apart_from=listener.home)
            with self._state:
                for channel, home in homes.items():
                    if self._listener_of.get(channel) is listener:
                        del self._listener_of[channel]
                        others.add(self._assign(channel, home))
        for other in others - {listener}:
            await self._call(other, "look", self._clock.now() + POLL_SECONDS)

    async def _give_up_idle(self, listener: Listener[Any], subscription: AsyncPubSub) -> None:
        oldest = self._clock.now() - LINGER_SECONDS
        with self._guard, self._state:
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


async def async_closed(subscription: AsyncPubSub | None) -> None:
    """Close a subscription, if there is one."""
    if subscription is not None:
        with suppress(RedisError, OSError):
            await subscription.aclose()


async def async_is_set(confirmed: AsyncConfirmed, seconds: float) -> bool:
    """Wait up to some seconds, and return whether it was set."""
    try:  # asyncio only
        with Alarm(seconds):
            await confirmed.wait()
    except TimeoutError:
        return False
    return True  # asyncio only
    # threads: return confirmed.wait(seconds)


# --- For threads: written by `make sync` from the classes above. ---


class RedisWakeups(ThreadWakeups):
    """The waiting lines of this process, woken by messages on their channels."""

    def __init__(self, subscribe: Callable[[Host | None], PubSub], clock: Clock, link: Link | ClusterLink) -> None:
        """Do not connect yet; `subscribe` creates subscriptions, and messages to the listener go through `link`."""
        self._link = link
        self._subscribe = subscribe
        self._is_closed = False
        super().__init__(clock)

    def _start_anew(self) -> None:
        super()._start_anew()
        self._state = threading.RLock()
        self._listeners: dict[Host | None, Listener[threading.Thread]] = {}
        self._listener_of: dict[str, Listener[threading.Thread]] = {}
        self._wanted: dict[str, list[Confirmed]] = {}
        self._asked: set[str] = set()
        self._missed: set[str] = set()  # channels on which a release may have been missed
        self._used_at: dict[str, float] = {}

    def listen(self, channel: str, deadline: float) -> None:
        """Return once the server has confirmed the subscription; at once, without one, if this is closed."""
        if self._is_closed:
            return
        homes = {} if channel in self._confirmed else self._link.homes([channel])
        with self._state:
            self._used_at[channel] = self._clock.now()
            if channel in self._confirmed:
                return
            confirmed = Confirmed()
            waiting = self._wanted.setdefault(channel, [])
            is_first = not waiting
            waiting.append(confirmed)
            listener = self._assign(channel, homes.get(channel))
        if is_first:
            self._call(listener, "look", deadline)
        if not is_set(confirmed, min(LISTEN_TIMEOUT, max(0.0, deadline - self._clock.now()))):
            with self._state:
                if channel in self._wanted:
                    self._missed.add(channel)  # the caller may continue without it
            if self._clock.now() >= deadline:
                return  # the wait is over: the parked waiter finds its own deadline passed
            raise StoreUnavailable(f"no subscription to {channel} within {LISTEN_TIMEOUT:g} s")

    def close(self) -> None:
        """End the listeners and their connections, for good."""
        self.close_soon()
        with self._state:
            listeners = list(self._listeners.values())
        for listener in listeners:
            thread = listener.runner
            if thread is not None:
                self._call(listener, "stop", self._clock.now() + POLL_SECONDS)
                thread.join(POLL_SECONDS * 3)

    def close_soon(self) -> None:
        """Let the listeners end when they next look, within POLL_SECONDS. A finalizer may call it at any point."""
        self._is_closed = True

    def _call(self, listener: Listener[Any], word: str, deadline: float) -> None:
        with suppress(RedisError, OSError, SegmentedError):  # the listener checks its list a little later anyway
            self._link.publish(listener.own_channel, word, deadline=deadline, at=listener.home)

    def _assign(self, channel: str, home: Host | None) -> Listener[threading.Thread]:
        """Return the running listener of a channel: its own, or that of its server."""
        listener = self._listener_of.get(channel) or self._listeners.get(home)
        if listener is None:  # in one step, because a signal handler may come here, too
            listener = self._listeners.setdefault(home, Listener(home, self._clock.now() + LINGER_SECONDS))
        self._listener_of[channel] = listener
        is_dead = listener.runner is None or not listener.runner.is_alive()
        if is_dead:
            self._start(listener)
        return listener

    # --- the listener's task or thread ---

    def _start(self, listener: Listener[threading.Thread]) -> None:
        thread = threading.Thread(target=self._run, args=(listener,), name="segmented-listener", daemon=True)
        listener.runner = thread
        thread.start()

    def _run(self, listener: Listener[threading.Thread]) -> None:
        warned = Warned()
        subscription: PubSub | None = None
        try:
            while self._is_needed(listener) and (subscription or not self._is_over(listener)):
                try:
                    subscription = subscription or self._subscribe(listener.home)
                    self._listen_once(listener, subscription)
                except Exception as error:  # noqa: BLE001  # even an unreadable message: all waiters depend on it
                    warned.note(error)
                    time.sleep(RECONNECT_SECONDS)
                    closed(subscription)
                    subscription = None
                    self._ask_again(listener)
        finally:
            closed(subscription)
            if self._is_needed(listener):
                self._lose(listener)  # something ended the thread: start again
                with self._state:
                    listener.runner = None
                    if self._lines:
                        self._start(listener)

    def _is_needed(self, listener: Listener[threading.Thread]) -> bool:
        """Return whether its task or thread is to go on. A signal handler may have started another one meanwhile."""
        this = threading.current_thread()
        if listener.runner is not this:  # asyncio: an eager task runs before it is the runner
            return False
        return not self._is_closed and self._listeners.get(listener.home) is listener

    def _is_over(self, listener: Listener[Any]) -> bool:
        """Return whether a node's listener has no channels; nothing finds it any more."""
        with self._state:
            if listener.home is None or listener in self._listener_of.values():
                return False
            if self._listeners.get(listener.home) is listener:
                del self._listeners[listener.home]
        return True

    def _listen_once(self, listener: Listener[Any], subscription: PubSub) -> None:
        with self._state:
            channels = [
                channel
                for channel in self._wanted
                if channel not in self._asked and self._listener_of.get(channel) is listener
            ]
            self._asked.update(channels)
        if listener.home is None:
            if not subscription.subscribed or channels:
                subscription.subscribe(listener.own_channel, *channels)
        else:
            if not subscription.subscribed:
                subscription.subscribe(listener.own_channel)
            for channel in channels:  # one by one: a command may name channels of one slot only
                subscription.ssubscribe(channel)
        message = subscription.get_message(timeout=POLL_SECONDS)
        self._check_life(listener, subscription, is_heard=message is not None)
        if message is not None:
            self._on_message(listener, message)
        if self._clock.now() >= listener.next_sweep:
            listener.next_sweep = self._clock.now() + LINGER_SECONDS
            self._give_up_idle(listener, subscription)

    def _check_life(
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
            subscription.ping()
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
        elif message["type"] in {"subscribe", "ssubscribe"}:
            with self._state:
                if not self._is_ours(listener, channel):
                    return
                self._confirmed.add(channel)
                self._asked.discard(channel)
                confirmed = self._wanted.pop(channel, None)
                is_missed = confirmed is None or channel in self._missed  # None: the driver has reconnected
                self._missed.discard(channel)
            for each in confirmed or ():
                each.set()
            if is_missed:  # a release may have been missed; otherwise the caller of `listen` tries now anyway
                self.signal(channel)

    def _is_ours(self, listener: Listener[Any], channel: str) -> bool:
        """Return whether a confirmation counts. The driver also makes subscriptions again that were given up."""
        is_wanted = channel in self._asked or channel in self._confirmed
        return is_wanted and self._listener_of.get(channel) is listener

    def _lose(self, listener: Listener[threading.Thread]) -> list[str]:
        """Note that its subscriptions are gone; return the channels to which it must subscribe again."""
        listener.heard_at = self._clock.now()
        with self._guard, self._state:
            channels = {channel for channel, its in self._listener_of.items() if its is listener}
            self._asked -= channels
            self._confirmed -= channels
            waited_for = channels & self._lines.keys()
            for channel in waited_for:
                self._wanted.setdefault(channel, [])
            self._missed |= waited_for
            for channel in channels - self._wanted.keys():
                del self._listener_of[channel]
            return [channel for channel in channels if channel in self._wanted]

    def _ask_again(self, listener: Listener[threading.Thread]) -> None:
        """Give each lost channel to the listener of the server that now has it."""
        others = set()
        if lost := self._lose(listener):
            homes = self._link.homes(lost, apart_from=listener.home)
            with self._state:
                for channel, home in homes.items():
                    if self._listener_of.get(channel) is listener:
                        del self._listener_of[channel]
                        others.add(self._assign(channel, home))
        for other in others - {listener}:
            self._call(other, "look", self._clock.now() + POLL_SECONDS)

    def _give_up_idle(self, listener: Listener[Any], subscription: PubSub) -> None:
        oldest = self._clock.now() - LINGER_SECONDS
        with self._guard, self._state:
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
            subscription.unsubscribe(*idle)
        for channel in idle if listener.home is not None else ():
            subscription.sunsubscribe(channel)


def closed(subscription: PubSub | None) -> None:
    """Close a subscription, if there is one."""
    if subscription is not None:
        with suppress(RedisError, OSError):
            subscription.close()


def is_set(confirmed: Confirmed, seconds: float) -> bool:
    """Wait up to some seconds, and return whether it was set."""
    return confirmed.wait(seconds)

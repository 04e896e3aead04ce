"""Wake-ups from Redis for threads: one subscription connection per process, opened by the first wait.

Only the listener's thread uses the subscription, because a redis-py PubSub must not be shared. A waiter that needs a
channel puts it on a list and wakes the listener with a message on the listener's private channel. The listener
unsubscribes from channels that nobody has waited on for a while, so that a thousand locks do not leave a thousand
subscriptions.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from redis.exceptions import ConnectionError as RedisConnectionError, RedisError

from segmented.errors import StoreUnavailable
from segmented.keys import listener_channel
from segmented.protocol.wire import readable, text
from segmented.stores.wakeups import ThreadWakeups, Wake

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.client import PubSub

    from segmented.clock import Clock
    from segmented.stores.redis.cluster_link import ClusterLink
    from segmented.stores.redis.link import Link

POLL_SECONDS: Final = 1.0
"""Longest time that the listener blocks before it checks its duties; a message wakes it immediately."""
LINGER_SECONDS: Final = 5.0
LISTEN_TIMEOUT: Final = 10.0
RECONNECT_SECONDS: Final = 0.2
PING_SECONDS: Final = 3.0
"""Seconds without a message after which a waiting process checks that its connection is still alive."""
SILENT: Final = "the subscription's server no longer answers"


class RedisWakeups(ThreadWakeups):
    """The waiting lines of this process, woken by messages on their channels."""

    def __init__(self, subscribe: Callable[[], PubSub], clock: Clock, link: Link | ClusterLink) -> None:
        """Do not connect yet; `subscribe` creates subscriptions, and messages to the listener go through `link`."""
        self._link = link
        self._subscribe = subscribe
        super().__init__(clock)

    def _start_anew(self) -> None:
        super()._start_anew()
        self._own_channel = listener_channel(uuid4().hex)
        self._state = threading.Lock()
        self._wanted: dict[str, list[Wake]] = {}
        self._asked: set[str] = set()
        self._missed: set[str] = set()  # channels on which a release may have been missed
        self._used_at: dict[str, float] = {}
        self._next_sweep = self._clock.now() + LINGER_SECONDS
        self._heard_at = self._pinged_at = 0.0
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def listen(self, channel: str, deadline: float) -> None:
        """Return once the server has confirmed the subscription."""
        with self._state:
            self._used_at[channel] = self._clock.now()
            if channel in self._confirmed:
                return
            confirmed = Wake()
            self._wanted.setdefault(channel, []).append(confirmed)
            if self._thread is None or not self._thread.is_alive():
                self._start()
        self._call("look", deadline)
        if not confirmed.wait(min(LISTEN_TIMEOUT, max(0.0, deadline - self._clock.now()))):
            with self._state:
                if channel in self._wanted:
                    self._missed.add(channel)  # the caller may continue without it
            if self._clock.now() >= deadline:
                return  # the wait is over: the parked waiter finds its own deadline passed
            message = f"no subscription to {channel} within {LISTEN_TIMEOUT:g} s"
            raise StoreUnavailable(message)

    def close(self) -> None:
        """End the listener and its connection."""
        self._stopping.set()
        thread = self._thread
        if thread is not None:
            self._call("stop", self._clock.now() + POLL_SECONDS)
            thread.join(POLL_SECONDS * 3)

    def _call(self, word: str, deadline: float) -> None:
        with suppress(RedisError, OSError):  # the listener checks its list a little later anyway
            self._link.publish(self._own_channel, word, deadline=deadline)

    # --- the listener's thread ---

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="segmented-listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        subscription: PubSub | None = None
        try:
            while not self._stopping.is_set():
                try:
                    subscription = subscription or self._subscribe()
                    self._listen_once(subscription)
                except Exception:  # noqa: BLE001  # even an unreadable message: all waiters depend on this thread
                    self._stopping.wait(RECONNECT_SECONDS)
                    _close(subscription)
                    subscription = None
                    self._ask_again()
        finally:
            _close(subscription)
            if not self._stopping.is_set():  # something ended the thread: start again
                self._ask_again()
                with self._state:
                    self._thread = None
                    if self._lines:
                        self._start()

    def _listen_once(self, subscription: PubSub) -> None:
        with self._state:
            channels = [channel for channel in self._wanted if channel not in self._asked]
            self._asked.update(channels)
        if not subscription.subscribed or channels:
            subscription.subscribe(self._own_channel, *channels)
        message = subscription.get_message(timeout=POLL_SECONDS)
        self._check_life(subscription, is_heard=message is not None)
        if message is not None:
            self._on_message(message)
        if self._clock.now() >= self._next_sweep:
            self._next_sweep = self._clock.now() + LINGER_SECONDS
            self._give_up_idle(subscription)

    def _check_life(self, subscription: Any, *, is_heard: bool) -> None:  # noqa: ANN401  # its `ping` is untyped
        """Raise if nothing has arrived since a PING: a server that is cut off does not close its connections."""
        now = self._clock.now()
        if is_heard or not self._lines:
            self._heard_at = now
        elif self._pinged_at > self._heard_at:
            raise RedisConnectionError(SILENT)
        elif now >= self._heard_at + PING_SECONDS:
            subscription.ping()
            self._pinged_at = now

    def _on_message(self, message: dict[str, Any]) -> None:
        channel = text(message["channel"])
        if message["type"] == "message":
            said = readable(message["data"])
            if not self._is_own_release(said):
                self.hear(channel, said)
        elif message["type"] == "subscribe":
            with self._state:
                self._confirmed.add(channel)
                self._asked.discard(channel)
                confirmed = self._wanted.pop(channel, None)
                is_missed = confirmed is None or channel in self._missed  # None: the driver has reconnected
                self._missed.discard(channel)
            for each in confirmed or ():
                each.set()
            if is_missed:  # a release may have been missed; otherwise the caller of `listen` tries now anyway
                self.signal(channel)

    def _ask_again(self) -> None:
        self._heard_at = self._clock.now()
        with self._guard, self._state:
            self._asked.clear()
            self._confirmed.clear()
            for channel in self._lines:
                self._wanted.setdefault(channel, [])
            self._missed.update(self._lines)

    def _give_up_idle(self, subscription: PubSub) -> None:
        oldest = self._clock.now() - LINGER_SECONDS
        with self._guard, self._state:
            idle = [
                channel
                for channel in self._confirmed
                if channel not in self._lines
                and channel != self._own_channel
                and self._used_at.get(channel, 0.0) < oldest
            ]
            self._confirmed.difference_update(idle)
            for channel in idle:
                self._used_at.pop(channel, None)
        if idle:
            subscription.unsubscribe(*idle)


def _close(subscription: PubSub | None) -> None:
    if subscription is not None:
        with suppress(RedisError, OSError):
            subscription.close()

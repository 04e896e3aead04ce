"""Wake-ups from Redis for threads: one subscription connection a process, started by the first wait.

All work on the subscription happens in the listener's thread, because a redis-py PubSub is not made to be shared. A
waiter that needs a channel puts it on a list and wakes the listener with a message on the listener's own private
channel. Channels that nobody has waited on for a while are given up, so that a thousand locks leave no thousand
subscriptions.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from redis.exceptions import RedisError

from segmented.errors import StoreUnavailable
from segmented.keys import listener_channel
from segmented.stores.redis.wire import text
from segmented.stores.wakeups import ThreadWakeups

if TYPE_CHECKING:
    import redis
    from redis.client import PubSub

    from segmented.clock import Clock

POLL_SECONDS: Final = 1.0
"""How long the listener blocks at most before it looks at its duties: a bound, not a delay; messages end it at once."""
LINGER_SECONDS: Final = 5.0
LISTEN_TIMEOUT: Final = 10.0
RECONNECT_SECONDS: Final = 0.2


class RedisWakeups(ThreadWakeups):
    """The lines of this process, woken by messages on their channels."""

    def __init__(self, client: redis.Redis, clock: Clock) -> None:
        """Connect nothing yet."""
        super().__init__(clock)
        self._client: Any = client  # redis-py leaves some of its methods untyped
        self._own_channel = listener_channel(uuid4().hex)
        self._state = threading.Lock()
        self._wanted: dict[str, threading.Event] = {}
        self._asked: set[str] = set()
        self._confirmed: set[str] = set()
        self._used_at: dict[str, float] = {}
        self._next_sweep = clock.now() + LINGER_SECONDS
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def listen(self, channel: str, deadline: float) -> None:
        """Return once the server has confirmed the subscription."""
        with self._state:
            self._used_at[channel] = self._clock.now()
            if channel in self._confirmed:
                return
            confirmed = self._wanted.setdefault(channel, threading.Event())
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="segmented-listener", daemon=True)
                self._thread.start()
        with suppress(RedisError, OSError):  # the listener looks at its list anyway, a little later
            self._client.execute_command("PUBLISH", self._own_channel, "look")
        if not confirmed.wait(min(LISTEN_TIMEOUT, max(0.0, deadline - self._clock.now()))):
            if self._clock.now() >= deadline:
                return  # the wait is over: the parked waiter finds its own deadline passed
            message = f"no subscription to {channel} within {LISTEN_TIMEOUT:g} s"
            raise StoreUnavailable(message)

    def close(self) -> None:
        """End the listener and its connection."""
        self._stopping.set()
        thread = self._thread
        if thread is not None:
            with suppress(RedisError, OSError):
                self._client.execute_command("PUBLISH", self._own_channel, "stop")
            thread.join(POLL_SECONDS * 3)

    # --- the listener's thread ---

    def _run(self) -> None:
        subscription = self._client.pubsub()
        try:
            while not self._stopping.is_set():
                try:
                    self._listen_once(subscription)
                except (RedisError, OSError):
                    self._stopping.wait(RECONNECT_SECONDS)
                    with suppress(RedisError, OSError):
                        subscription.close()
                    subscription = self._client.pubsub()
                    self._ask_again()
        finally:
            with suppress(RedisError, OSError):
                subscription.close()

    def _listen_once(self, subscription: PubSub) -> None:
        with self._state:
            channels = [channel for channel in self._wanted if channel not in self._asked]
            self._asked.update(channels)
        if not subscription.subscribed or channels:
            subscription.subscribe(self._own_channel, *channels)
        message = subscription.get_message(timeout=POLL_SECONDS)
        if message is not None:
            self._on_message(message)
        if self._clock.now() >= self._next_sweep:
            self._next_sweep = self._clock.now() + LINGER_SECONDS
            self._give_up_idle(subscription)

    def _on_message(self, message: dict[str, Any]) -> None:
        channel = text(message["channel"])
        if message["type"] == "message":
            self.signal(channel)
        elif message["type"] == "subscribe":
            with self._state:
                self._confirmed.add(channel)
                self._asked.discard(channel)
                confirmed = self._wanted.pop(channel, None)
            if confirmed is not None:
                confirmed.set()
            self.signal(channel)  # after a lost connection, a release may have gone unheard

    def _ask_again(self) -> None:
        with self._guard, self._state:
            self._asked.clear()
            self._confirmed.clear()
            for channel in self._lines:
                self._wanted.setdefault(channel, threading.Event())

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

"""Whom a confirmed subscription wakes, on a wire that does as the test says: nobody, unless something was missed."""

import asyncio
import queue
import threading
from collections.abc import Iterable
from math import inf
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from segmented.clock import ManualClock, SystemClock
from segmented.plans.line import Place
from segmented.stores.redis import listener
from segmented.stores.redis.addresses import Host
from segmented.stores.redis.listener import AsyncRedisWakeups, RedisWakeups

FREED = "freed"
SHORT = 0.05
SOON = 30.0


def confirming(channel: str) -> dict[str, Any]:
    return {"type": "subscribe", "channel": channel, "data": 1}


class Wire:
    """A link and its subscriptions, for threads."""

    def __init__(self, *, confirms: bool = True) -> None:
        self.said: queue.Queue[dict[str, Any] | Exception] = queue.Queue()
        self.subscribed = False
        self.asked_for: list[str] = []
        self.given_up, self.closed = threading.Event(), threading.Event()
        self._confirms = confirms

    def homes(self, channels: Iterable[str], *, apart_from: Host | None = None) -> dict[str, Host | None]:  # noqa: ARG002  # as a link has it
        return dict.fromkeys(channels)

    def publish(self, channel: str, word: str, *, deadline: float, at: Host | None = None) -> None:  # noqa: ARG002  # as a link has it
        self.said.put({"type": "message", "channel": channel, "data": word})

    def subscribe(self, *channels: str) -> None:
        self.subscribed = True
        self.asked_for += [channel for channel in channels if channel == FREED]
        for channel in channels if self._confirms else ():
            self.said.put(confirming(channel))

    def unsubscribe(self, *_: str) -> None:
        """The connection was broken: the driver connects and subscribes again, and only then unsubscribes."""
        self.said.put(confirming(FREED))
        self.given_up.set()

    def get_message(self, *, timeout: float) -> dict[str, Any] | None:
        try:
            said = self.said.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(said, Exception):
            raise said
        return said

    def ping(self) -> None:
        self.said.put({"type": "pong", "channel": "", "data": ""})

    def close(self) -> None:
        self.subscribed = False
        self.closed.set()


class AsyncWire:
    """The same for asyncio."""

    def __init__(self, *, confirms: bool = True) -> None:
        self.said: asyncio.Queue[dict[str, Any] | Exception] = asyncio.Queue()
        self.subscribed = False
        self.asked_for: list[str] = []
        self.given_up, self.closed = asyncio.Event(), asyncio.Event()
        self._confirms = confirms

    async def homes(self, channels: Iterable[str], *, apart_from: Host | None = None) -> dict[str, Host | None]:  # noqa: ARG002  # as a link has it
        return dict.fromkeys(channels)

    async def publish(self, channel: str, word: str, *, deadline: float, at: Host | None = None) -> None:  # noqa: ARG002  # as a link has it
        self.said.put_nowait({"type": "message", "channel": channel, "data": word})

    async def subscribe(self, *channels: str) -> None:
        self.subscribed = True
        self.asked_for += [channel for channel in channels if channel == FREED]
        for channel in channels if self._confirms else ():
            self.said.put_nowait(confirming(channel))

    async def unsubscribe(self, *_: str) -> None:
        """Do as `Wire.unsubscribe`."""
        self.said.put_nowait(confirming(FREED))
        self.given_up.set()

    async def get_message(self, *, timeout: float) -> dict[str, Any] | None:
        try:
            said = await asyncio.wait_for(self.said.get(), timeout)
        except TimeoutError:
            return None
        if isinstance(said, Exception):
            raise said
        return said

    async def ping(self) -> None:
        self.said.put_nowait({"type": "pong", "channel": "", "data": ""})

    async def aclose(self) -> None:
        self.subscribed = False
        self.closed.set()


def made(wire: Any) -> tuple[RedisWakeups, Place, threading.Event]:  # noqa: ANN401  # in place of a link
    """Make the lines of a process, with one place, and the event that tells of its being woken."""
    wakeups, woken = RedisWakeups(lambda _: wire, SystemClock(), wire), threading.Event()
    place = wakeups.join(FREED)
    place.notify = woken.set
    return wakeups, place, woken


def async_made(wire: Any) -> tuple[AsyncRedisWakeups, Place, asyncio.Event]:  # noqa: ANN401  # in place of a link
    """Make the same for asyncio."""
    wakeups, woken = AsyncRedisWakeups(lambda _: wire, SystemClock(), wire), asyncio.Event()
    place = wakeups.join(FREED)
    place.notify = woken.set
    return wakeups, place, woken


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "RECONNECT_SECONDS", 0.001)
    monkeypatch.setattr(listener, "PING_SECONDS", inf)  # no pause of the machine makes a silent connection


# --- who sleeps may have missed a release ---


def test_a_confirmation_that_comes_when_nobody_waits_for_it_any_more_wakes_the_head() -> None:
    wire = Wire(confirms=False)
    wakeups, place, woken = made(wire)
    wakeups.listen(FREED, SystemClock().now() + SHORT)
    assert not place.woken
    wire.said.put(confirming(FREED))
    assert woken.wait(SOON)
    wakeups.close()
    assert place.woken


def test_a_confirmation_for_which_nobody_waits_wakes_the_head_in_asyncio() -> None:
    async def body() -> None:
        wire = AsyncWire(confirms=False)
        wakeups, place, woken = async_made(wire)
        await wakeups.listen(FREED, SystemClock().now() + SHORT)
        assert not place.woken
        wire.said.put_nowait(confirming(FREED))
        await asyncio.wait_for(woken.wait(), SOON)
        await wakeups.close()
        assert place.woken

    asyncio.run(body())


# --- a subscription that was given up, and that the driver has made again, is none ---


PONG: dict[str, Any] = {"type": "pong", "channel": "", "data": ""}


def ended(channel: str) -> dict[str, Any]:
    return {"type": "unsubscribe", "channel": channel, "data": 0}


def test_a_channel_that_was_given_up_and_the_driver_renewed_is_asked_for_again() -> None:
    wire, clock = Wire(), ManualClock()
    wakeups = RedisWakeups(lambda _: wire, clock, wire)  # type: ignore[arg-type, return-value]  # in place of a link
    wakeups.listen(FREED, inf)
    clock.advance(60.0)
    wire.said.put(PONG)
    assert wire.given_up.wait(SOON)
    wire.said.put(RedisConnectionError("broken"))  # the driver's subscription is gone with its connection
    assert wire.closed.wait(SOON)
    wakeups.join(FREED)
    wakeups.listen(FREED, inf)
    wakeups.close()
    assert wire.asked_for == [FREED, FREED]


def test_a_channel_that_was_given_up_is_asked_for_again_in_asyncio() -> None:
    async def body() -> None:
        wire, clock = AsyncWire(), ManualClock()
        wakeups = AsyncRedisWakeups(lambda _: wire, clock, wire)  # type: ignore[arg-type, return-value]  # as above
        await wakeups.listen(FREED, inf)
        clock.advance(60.0)
        wire.said.put_nowait(PONG)
        async with asyncio.timeout(SOON):
            await wire.given_up.wait()
        wire.said.put_nowait(RedisConnectionError("broken"))
        async with asyncio.timeout(SOON):
            await wire.closed.wait()
        wakeups.join(FREED)
        await wakeups.listen(FREED, inf)
        await wakeups.close()
        assert wire.asked_for == [FREED, FREED]

    asyncio.run(body())


def test_a_subscription_that_the_server_ends_late_is_made_again_and_wakes_the_head() -> None:
    wire = Wire()
    wakeups, place, woken = made(wire)
    wakeups.listen(FREED, inf)
    wire.said.put(ended(FREED))
    assert woken.wait(SOON)
    wakeups.close()
    assert (place.woken, wire.asked_for) == (True, [FREED, FREED])

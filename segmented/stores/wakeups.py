"""The waiting lines of one process, for threads and for asyncio: the part of every wait that sleeps.

The two classes differ only in how they sleep; `plans.line` makes all decisions. The guard is for threads; a task holds
it over no `await`.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from math import inf
from secrets import token_hex
from typing import TYPE_CHECKING, ClassVar

from segmented.clock import Clock, Stillness
from segmented.plans.line import Line, Offer, Place
from segmented.plans.tasks import OfOneLoop
from segmented.process import BeginsAnew

if TYPE_CHECKING:
    from segmented.protocol import Operation

OWN_RELEASES_MAX = 1_000
SLEEP_MAX = 60.0
"""Longest sleep in seconds before a waiter checks the clock again."""


class Wake:
    """Wakes one thread. An exception of a signal handler cannot leave it locked, as it can a `threading.Event`."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the thread, now or when it next waits."""
        with suppress(RuntimeError):  # it was set before
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Sleep until it is set or the time has passed; return whether it was set, once for each time."""
        return self._lock.acquire(timeout=seconds)

    def clear(self) -> None:
        """Forget that it was set."""
        if not self._lock.locked():  # gevent lets others run before it says that a lock is taken
            self._lock.acquire(blocking=False)


class OwnReleases:
    """Releases of this process. Their reply wakes the next waiter, so their later messages must not wake it again."""

    def __init__(self) -> None:
        self._own_releases: set[str] = set()

    def note_release(self, holder_id: str) -> None:
        """Expect the message of a release that is about to be sent."""
        if len(self._own_releases) >= OWN_RELEASES_MAX:  # their messages never arrived
            self._own_releases.clear()
        self._own_releases.add(holder_id)

    def forget_release(self, holder_id: str) -> None:
        """Let the release's message wake a waiter after all: its sender may not have woken one."""
        self._own_releases.discard(holder_id)

    def _is_own_release(self, holder_id: str) -> bool:
        try:
            self._own_releases.remove(holder_id)
        except KeyError:
            return False
        return True


class WaitingLines(OwnReleases):
    """The lines of those that wait, by channel. `signal` delivers the messages."""

    _wake_kind: ClassVar[type[Wake | asyncio.Event]]
    """Type of the object that a waiter sleeps on."""

    def __init__(self, clock: Clock) -> None:
        """Measure time with `clock`."""
        super().__init__()
        self._clock = clock
        self._start_anew()

    def _start_anew(self) -> None:
        self._forget_lines()

    def _forget_lines(self) -> None:
        self._guard = threading.RLock()
        self._lines: dict[str, Line] = {}
        self._confirmed: set[str] = set()  # channels whose messages are known to reach this process

    def _begin(self, *, joins: bool) -> None:
        """Start again in a forked child, or in another event loop."""
        raise NotImplementedError

    def lines(self) -> dict[str, Line]:
        """Return the lines in which somebody waits, by channel."""
        return dict(self._lines)

    def is_waited_for(self, channel: str, *, or_heard: bool = False) -> bool:
        """Return whether the channel's line has a waiter, or with `or_heard` its messages reach this process."""
        self._begin(joins=False)
        return channel in self._lines or (or_heard and channel in self._confirmed)

    def join(self, channel: str, noted: list[Place] | None = None) -> Place:
        """Join the end of the channel's line; the place is in `noted` before it is in the line."""
        self._begin(joins=True)
        with self._guard:
            line = self._lines.get(channel) or Line(channel, token_hex(8))
            place = line.join(self._wake_kind().set, noted)
            self._lines[channel] = line  # not before: only a place that leaves deletes it
            place.is_heard = channel in self._confirmed
            return place

    def mend(self, place: Place) -> None:
        """Repair the place's line, which an exception may have left half-changed."""
        with self._guard:
            place.line.mend()

    def hear(self, channel: str, said: str = "") -> None:
        """Handle a message."""
        with self._guard:
            if line := self._lines.get(channel):
                line.hear(self._clock.now(), said)

    def signal(self, channel: str) -> None:
        """Wake the head of the channel's line."""
        with self._guard:
            if line := self._lines.get(channel):
                line.signal()

    def take_offer(self, channel: str, taken: list[Place] | None = None) -> Place | None:
        """Return the head of the line, to make its attempt for it; `hand` must follow. None: call `signal` instead.

        The place is in `taken` before it is out of the line.
        """
        with self._guard:
            line = self._lines.get(channel)
            return None if line is None else line.take_offer(taken)

    def lets_others(self, channel: str) -> bool:
        """Return whether to free with a message only, so that waiters of other processes get a chance."""
        with self._guard:
            line = self._lines.get(channel)
            return line is not None and line.lets_others(self._clock.now())

    def hand(
        self, place: Place, handed: tuple[object, float] | None, taken: list[Place] | None = None
    ) -> tuple[Operation[object], ...]:
        """Wake a place with the answer to its attempt; return the operations that undo it if the waiter has left."""
        with self._guard:
            return () if place.line.hand(place, handed, taken) else place.line.undoing(place)

    def recover(self, channel: str, holder_id: str, taken: list[Place]) -> tuple[Operation[object], ...]:
        """Repair the line after an exception that may have struck a release at any point.

        Returns the operations that undo the attempts for waiters of `taken` that have left.
        """
        self.forget_release(holder_id)
        with self._guard:
            undoing = [operation for place in taken for operation in self.hand(place, None, taken)]
            if line := self._lines.get(channel):
                line.mend()
        return tuple(undoing)

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the line; an empty line is deleted. Return whether the process does not wait any more."""
        with self._guard:
            is_over = place.line.leave(place, due, in_time=in_time)
            if not len(place.line) and self._lines.get(place.line.channel) is place.line:
                del self._lines[place.line.channel]
        return is_over


class ThreadWakeups(BeginsAnew, WaitingLines):
    """Waiting lines for threads. The greenlets of gevent count as threads."""

    _wake_kind = Wake

    def _start_anew(self) -> None:
        super()._start_anew()
        self._forget_lines()

    def _begin(self, *, joins: bool) -> None:  # noqa: ARG002  # asyncio asks
        self._begin_if_new()

    def listen(self, channel: str, deadline: float) -> None:
        """Do nothing: a release in this process calls `signal`."""

    def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken or until the deadline; return whether it was woken."""
        wake: Wake = place.notify.__self__  # type: ignore[attr-defined]  # the bound `set` made in join
        with self._guard:
            place.line.park(place, due, offer)
        stillness = Stillness(self._clock, deadline)
        while True:
            wake.clear()
            with self._guard:
                now = self._clock.now()
                step = place.line.next_step(place, now, deadline)
            if isinstance(step, bool):
                return step
            if not stillness.moved(step):
                wake.wait(min(max(step - now, 0.0), SLEEP_MAX))


class AsyncioWakeups(WaitingLines, OfOneLoop):
    """Waiting lines for one event loop."""

    _wake_kind = asyncio.Event

    def _begin(self, *, joins: bool) -> None:
        if joins or self._loop is not None:  # somebody has waited, perhaps in a loop that has ended
            self._enter_loop()

    async def listen(self, channel: str, deadline: float) -> None:
        """Do nothing: a release in this process calls `signal`."""

    async def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken or until the deadline; return whether it was woken."""
        event: asyncio.Event = place.notify.__self__  # type: ignore[attr-defined]  # the bound `set` made in join
        place.line.park(place, due, offer)
        stillness = Stillness(self._clock, deadline)
        while True:
            event.clear()
            now = self._clock.now()
            step = place.line.next_step(place, now, deadline)
            if isinstance(step, bool):
                return step
            if stillness.moved(step):
                await asyncio.sleep(0)  # other tasks run first
                continue
            seconds = min(max(step - now, 0.0), SLEEP_MAX)
            timer = None if step == inf else asyncio.get_running_loop().call_later(seconds, event.set)
            try:
                await event.wait()
            finally:
                if timer is not None:
                    timer.cancel()

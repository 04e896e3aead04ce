"""Several independent servers as one store, which answers by majority: locks work on it as on one server.

An unreachable server does not delay a wait. A majority of subscriptions notices every release, because the holder had
the lock on a majority too. One release sends as many messages as it held votes.

`Heard` decides what a message means. The first message of a release says that votes are being given back. An attempt
is likely to succeed only when a majority of the servers has sent one. The last messages arrive when the next waiter may
be trying already, so they must not wake anyone. If some never arrive, the attempt is made a little later.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from functools import partial
from math import inf
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from segmented.clock import Clock, Duration, SystemClock, in_seconds
from segmented.errors import InvalidInput, SegmentedError
from segmented.plans.store_kinds import NotPickled
from segmented.plans.tasks import Alarm, begun
from segmented.process import THIS, BeginsAnew
from segmented.protocol import Operation, ReleaseVote
from segmented.stores.quorum.lane import AsyncLane, Errand, ThreadLane
from segmented.stores.quorum.voting import Ask, Await, Membership, Pause, Rules, Step, Steps, majority_of, voting
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.plans.drivers import AsyncStore, AsyncWakeups, Store, Wakeups
    from segmented.plans.line import Line, Place


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


__all__ = ["AsyncQuorumStore", "QuorumStore"]

AnswerT = TypeVar("AnswerT")

SERVERS_MIN: Final = 3
SERVERS_MAX: Final = 15
DEFAULT_ANSWER_TIMEOUT: Final = 0.1
ANSWER_TIMEOUT_MAX: Final = 60.0
CLOSE_SECONDS: Final = 1.0


def checked_stores(stores: Sequence[Any]) -> list[Any]:
    """Refuse a number of stores that is unsuitable for a majority, and a store that is given twice."""
    found = list(stores)
    if not SERVERS_MIN <= len(found) <= SERVERS_MAX:
        message = f"a quorum of {len(found)} servers: give {SERVERS_MIN} to {SERVERS_MAX}, preferably an odd number"
        raise InvalidInput(message)
    for index, store in enumerate(found):
        if any(store is other for other in found[:index]):
            raise InvalidInput(f"{store!r} is given twice: a quorum needs servers that are independent of each other")
    return found


def checked_answer_timeout(given: object) -> float:
    """Refuse a time that is not a usable limit for an answer."""
    seconds = in_seconds(given)
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= ANSWER_TIMEOUT_MAX:
        message = f"answer_timeout is a number of seconds above 0 and up to {ANSWER_TIMEOUT_MAX:g}, not {seconds!r}"
        raise InvalidInput(message)
    return float(seconds)


def errands_of(step: Ask) -> dict[int, list[Errand]]:
    """Return the errands for each server."""
    errands: dict[int, list[Errand]] = {}
    for index, tally in enumerate(step.poll.tallies):
        send_by = inf if isinstance(tally.operation, ReleaseVote) else step.send_by  # releases are never too late
        for server in tally.servers:
            errand = Errand(tally.operation, send_by, step.poll, index)
            errands.setdefault(server, []).append(errand)
    return errands


class AsyncQuorumStore(NotPickled, BeginsAnew):
    """Three or more independent servers that are asked in parallel and answer by majority. For one event loop.

    It is for `AsyncQuorumLock` only: it has no fencing tokens and no pools. It does not wait for a server that does not
    answer within `answer_timeout` seconds. While it is in use, it has one task per server.

    Use an odd number of servers. An even number is allowed, but tolerates no more failures than one server less.
    """

    def __init__(
        self,
        stores: Sequence[AsyncStore],
        *,
        answer_timeout: Duration = DEFAULT_ANSWER_TIMEOUT,
        clock: Clock | None = None,
    ) -> None:
        """Use `stores`; the caller closes them. Raises InvalidInput if there are too few.

        The first acquire raises an error if the servers are not independent of each other.
        """
        self._stores: list[AsyncStore] = checked_stores(stores)
        self._answer_timeout = checked_answer_timeout(answer_timeout)
        self.clock: Clock = clock or SystemClock()
        self._start_anew()

    def _start_anew(self) -> None:
        # The parent's tasks and threads do not exist here, and cleaning up after them is the parent's task.
        super()._start_anew()
        self._guard = threading.RLock()
        self._rules = Rules(len(self._stores), self._answer_timeout, SystemRandom().uniform)
        self._membership = Membership([repr(store) for store in self._stores])
        self._lanes = [
            AsyncLane(server, store, self.clock, pause=self._answer_timeout, tell=self._told)
            for server, store in enumerate(self._stores)
        ]
        self._wakeups = AsyncQuorumWakeups(self.clock, self._lanes, grace=self._answer_timeout)

    @property
    def wakeups(self) -> AsyncQuorumWakeups:
        """Return the waiting lines of this process."""
        self._begin_if_new()
        return self._wakeups

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation on a majority; raises StoreUnavailable if no majority answers in time."""
        (answer,) = await self.execute_many((operation,), deadline=deadline)
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations together, each decided separately; one answer or error each."""
        self._begin_if_new()
        return await self._run(voting(self._rules, self._membership, operations, deadline))

    async def _run(self, steps: Steps[AnswerT]) -> AnswerT:
        now = 0.0
        step: Step | None = None
        while True:
            try:
                with self._guard:  # the steps read votes that lanes write
                    step = next(steps) if step is None else steps.send(now)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # the generator's return value is untyped here
            match step:
                case Ask():
                    for server, errands in errands_of(step).items():
                        self._lanes[server].submit(errands)
                case Await():
                    await self._await(step)
                case Pause(until):
                    await asyncio.sleep(max(0.0, until - self.clock.now()))
            now = self.clock.now()

    async def _await(self, step: Await) -> None:
        over = asyncio.Event()
        with self._guard:
            step.poll.when_over(over.set, for_all=step.for_all)
        with suppress(TimeoutError), Alarm(max(0.0, step.until - self.clock.now())):  # asyncio only
            await over.wait()
        # threads: over.wait(max(0.0, step.until - self.clock.now()))

    def _told(self, server: int, errand: Errand, vote: object) -> None:
        if errand.poll is not None:
            with self._guard:
                errand.poll.note(errand.index, server, vote)

    async def close(self) -> None:
        """End the tasks after they have sent the remaining releases. The servers' stores stay open."""
        await self.wakeups.close()  # asyncio only
        await asyncio.gather(*(begun(partial(lane.close, CLOSE_SECONDS)) for lane in self._lanes))  # asyncio only
        # threads: if THIS.process_id == self._process_id:
        # threads:     until = self.clock.now() + CLOSE_SECONDS
        # threads:     for lane in self._lanes:
        # threads:         lane.close(0.0)
        # threads:     for lane in self._lanes:
        # threads:         lane.close(max(0.0, until - self.clock.now()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncQuorumStore({', '.join(repr(store) for store in self._stores)})"


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


class QuorumStore(NotPickled, BeginsAnew):
    """Three or more independent servers that are asked in parallel and answer by majority. For one event loop.

    It is for `QuorumLock` only: it has no fencing tokens and no pools. It does not wait for a server that does not
    answer within `answer_timeout` seconds. While it is in use, it has one task per server.

    Use an odd number of servers. An even number is allowed, but tolerates no more failures than one server less.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        *,
        answer_timeout: Duration = DEFAULT_ANSWER_TIMEOUT,
        clock: Clock | None = None,
    ) -> None:
        """Use `stores`; the caller closes them. Raises InvalidInput if there are too few.

        The first acquire raises an error if the servers are not independent of each other.
        """
        self._stores: list[Store] = checked_stores(stores)
        self._answer_timeout = checked_answer_timeout(answer_timeout)
        self.clock: Clock = clock or SystemClock()
        self._start_anew()

    def _start_anew(self) -> None:
        # The parent's tasks and threads do not exist here, and cleaning up after them is the parent's task.
        super()._start_anew()
        self._guard = threading.RLock()
        self._rules = Rules(len(self._stores), self._answer_timeout, SystemRandom().uniform)
        self._membership = Membership([repr(store) for store in self._stores])
        self._lanes = [
            ThreadLane(server, store, self.clock, pause=self._answer_timeout, tell=self._told)
            for server, store in enumerate(self._stores)
        ]
        self._wakeups = ThreadQuorumWakeups(self.clock, self._lanes, grace=self._answer_timeout)

    @property
    def wakeups(self) -> ThreadQuorumWakeups:
        """Return the waiting lines of this process."""
        self._begin_if_new()
        return self._wakeups

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation on a majority; raises StoreUnavailable if no majority answers in time."""
        (answer,) = self.execute_many((operation,), deadline=deadline)
        if isinstance(answer, SegmentedError):
            raise answer
        return answer

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations together, each decided separately; one answer or error each."""
        self._begin_if_new()
        return self._run(voting(self._rules, self._membership, operations, deadline))

    def _run(self, steps: Steps[AnswerT]) -> AnswerT:
        now = 0.0
        step: Step | None = None
        while True:
            try:
                with self._guard:  # the steps read votes that lanes write
                    step = next(steps) if step is None else steps.send(now)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # the generator's return value is untyped here
            match step:
                case Ask():
                    for server, errands in errands_of(step).items():
                        self._lanes[server].submit(errands)
                case Await():
                    self._await(step)
                case Pause(until):
                    time.sleep(max(0.0, until - self.clock.now()))
            now = self.clock.now()

    def _await(self, step: Await) -> None:
        over = threading.Event()
        with self._guard:
            step.poll.when_over(over.set, for_all=step.for_all)
        over.wait(max(0.0, step.until - self.clock.now()))

    def _told(self, server: int, errand: Errand, vote: object) -> None:
        if errand.poll is not None:
            with self._guard:
                errand.poll.note(errand.index, server, vote)

    def close(self) -> None:
        """End the tasks after they have sent the remaining releases. The servers' stores stay open."""
        if THIS.process_id == self._process_id:
            until = self.clock.now() + CLOSE_SECONDS
            for lane in self._lanes:
                lane.close(0.0)
            for lane in self._lanes:
                lane.close(max(0.0, until - self.clock.now()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"QuorumStore({', '.join(repr(store) for store in self._stores)})"

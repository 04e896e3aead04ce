"""The quorum as a store, for threads and for asyncio: locks, leases and renewal work on it as on one server."""

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
from segmented.stores.quorum.voting import Ask, Await, Membership, Pause, Rules, Step, Steps, voting
from segmented.stores.quorum.wakeups import AsyncQuorumWakeups, ThreadQuorumWakeups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.plans.drivers import AsyncStore, Store

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

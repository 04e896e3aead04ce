"""The quorum as a store, for asyncio: the same steps, with tasks instead of threads.

`AsyncLane` is the twin of `lane`, with a task that ends when there is nothing to do.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from math import inf
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Self, TypeVar

from segmented.clock import Clock, SystemClock
from segmented.errors import SegmentedError
from segmented.plans.store_kinds import NotPickled
from segmented.plans.tasks import Alarm, OfOneLoop, begun
from segmented.stores.quorum.lane import PATIENCE, unexpected
from segmented.stores.quorum.request_queue import Errand, RequestQueue
from segmented.stores.quorum.store import (
    CLOSE_SECONDS,
    DEFAULT_ANSWER_TIMEOUT,
    checked_answer_timeout,
    checked_stores,
    errands_of,
)
from segmented.stores.quorum.tally import NotAsked
from segmented.stores.quorum.voting import Ask, Await, Membership, Pause, Rules, Steps, voting
from segmented.stores.quorum.wakeups import AsyncQuorumWakeups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.clock import Duration
    from segmented.plans.drivers import AsyncStore
    from segmented.protocol import Operation
    from segmented.stores.quorum.lane import Tell
    from segmented.stores.quorum.voting import Step

AnswerT = TypeVar("AnswerT")


class AsyncQuorumStore(NotPickled):
    """Three or more independent servers that are asked in parallel and answer by majority.

    For one event loop; otherwise as `QuorumStore`.
    """

    def __init__(
        self,
        stores: Sequence[AsyncStore],
        *,
        answer_timeout: Duration = DEFAULT_ANSWER_TIMEOUT,
        clock: Clock | None = None,
    ) -> None:
        """Use `stores`; the caller closes them. Raises InvalidInput if there are too few."""
        self._stores: list[AsyncStore] = checked_stores(stores)
        within = checked_answer_timeout(answer_timeout)
        self.clock: Clock = clock or SystemClock()
        self._rules = Rules(len(self._stores), within, SystemRandom().uniform)
        self._membership = Membership([repr(store) for store in self._stores])
        self._lanes = [
            AsyncLane(server, store, self.clock, pause=within, tell=_told) for server, store in enumerate(self._stores)
        ]
        self.wakeups = AsyncQuorumWakeups(self.clock, self._stores, grace=within)

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
        return await self._run(voting(self._rules, self._membership, operations, deadline))

    async def _run(self, steps: Steps[AnswerT]) -> AnswerT:
        now = 0.0
        step: Step | None = None
        while True:
            try:
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
        step.poll.when_over(over.set, for_all=step.for_all)
        with suppress(TimeoutError), Alarm(max(0.0, step.until - self.clock.now())):
            await over.wait()

    async def close(self) -> None:
        """End the tasks after they have sent the remaining releases. The servers' stores stay open."""
        await self.wakeups.close()
        await asyncio.gather(*(begun(partial(lane.close, CLOSE_SECONDS)) for lane in self._lanes))

    async def __aenter__(self) -> Self:
        """Return the store; the end of the `async with` statement closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    def __repr__(self) -> str:
        """Return the names of the servers."""
        return f"AsyncQuorumStore({', '.join(repr(store) for store in self._stores)})"


def _told(server: int, errand: Errand, vote: object) -> None:
    if errand.poll is not None:
        errand.poll.note(errand.index, server, vote)


class AsyncLane(OfOneLoop):
    """One server, and the task that sends requests to it."""

    def __init__(self, server: int, store: AsyncStore, clock: Clock, *, pause: float, tell: Tell) -> None:
        """Do not start anything yet."""
        self.store = store
        self._server = server
        self._clock = clock
        self._tell = tell
        self._queue = RequestQueue(pause)
        self._is_closing = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def submit(self, errands: Sequence[Errand]) -> None:
        """Queue errands behind the earlier ones."""
        self._enter_loop()
        refused = errands if self._is_closing else self._queue.add(errands)
        self._wake()
        for errand in refused:
            self._tell(self._server, errand, self._not_sent())

    async def close(self, seconds: float) -> None:
        """Send the remaining errands, and failed ones once more, and end; within `seconds` if the server answers."""
        self._enter_loop()
        self._is_closing = True
        if len(self._queue):
            self._wake()
        self._changed.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=seconds)
            for task in late:
                task.cancel()
            self._task = None

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(begun(self._run), name=f"segmented-quorum-{self._server}")
        self._changed.set()

    # --- the lane's task ---

    async def _run(self) -> None:
        while await self._is_busy():
            batch, late = self._queue.take_all() if self._is_closing else self._queue.take(self._clock.now())
            for errand in late:
                self._tell(self._server, errand, self._not_sent())
            if batch:
                await self._send(batch)
        self._task = None

    async def _is_busy(self) -> bool:
        """Sleep until there is work; return False if nothing is left."""
        while len(self._queue):
            seconds = self._queue.next_time() - self._clock.now()
            if seconds <= 0 or self._is_closing:
                return True
            self._changed.clear()
            timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                timer.cancel()
        return False

    async def _send(self, batch: Sequence[Errand]) -> None:
        votes = await self._asked(batch)
        now = self._clock.now()
        for errand, vote in zip(batch, votes, strict=True):
            if not self._is_closing:
                self._queue.settle(errand, vote, now)
        for errand, vote in zip(batch, votes, strict=True):
            self._tell(self._server, errand, vote)

    async def _asked(self, batch: Sequence[Errand]) -> Sequence[Any]:
        operations = [errand.operation for errand in batch]
        try:
            return await self.store.execute_many(operations, deadline=self.store.clock.now() + PATIENCE)
        except SegmentedError as error:
            return [error] * len(batch)
        except Exception as error:  # noqa: BLE001  # the lane continues, and the waiting caller gets the error
            return [unexpected(error)] * len(batch)

    def _not_sent(self) -> NotAsked:
        return NotAsked(f"{self.store!r} was not asked in time")

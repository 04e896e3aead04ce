"""The quorum as a store, for asyncio: the same steps, with tasks instead of threads."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from math import inf
from random import SystemRandom
from typing import TYPE_CHECKING, Self, TypeVar

from segmented.clock import Clock, SystemClock
from segmented.errors import SegmentedError
from segmented.plans.alarm import Alarm
from segmented.plans.tasks import begun
from segmented.stores.quorum.async_lane import AsyncLane
from segmented.stores.quorum.membership import Membership
from segmented.stores.quorum.store import (
    CLOSE_SECONDS,
    DEFAULT_ANSWER_WITHIN,
    checked_answer_within,
    checked_stores,
    errands_of,
)
from segmented.stores.quorum.voting import Ask, Await, Pause, Rules, Steps, voting
from segmented.stores.quorum.wakeups import AsyncQuorumWakeups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.plans.drivers import AsyncStore
    from segmented.protocol import Operation
    from segmented.stores.quorum.request_queue import Errand
    from segmented.stores.quorum.voting import Step

AnswerT = TypeVar("AnswerT")


class AsyncQuorumStore:
    """Three or more independent servers that answer by majority, for one event loop; otherwise as `QuorumStore`."""

    def __init__(
        self,
        stores: Sequence[AsyncStore],
        *,
        answer_within: float = DEFAULT_ANSWER_WITHIN,
        clock: Clock | None = None,
    ) -> None:
        """Use `stores`; the caller closes them. Raises InvalidInput if there are too few."""
        self._stores: list[AsyncStore] = checked_stores(stores)
        within = checked_answer_within(answer_within)
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

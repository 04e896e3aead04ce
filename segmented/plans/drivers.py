"""Drivers: they perform what a plan yields. One body an algorithm runs under each of them."""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from segmented.plans.effects import Batch, IsWaitedFor, Join, Leave, Listen, Now, Park, Plan, Within
from segmented.plans.tasks import begun
from segmented.protocol import Effect, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from segmented.clock import Clock
    from segmented.errors import SegmentedError
    from segmented.plans.line import Offer, Place

AnswerT = TypeVar("AnswerT")
OutcomeT = TypeVar("OutcomeT")


class Wakeups(Protocol):
    """The lines of one process and what wakes them, for threads."""

    def is_waited_for(self, channel: str) -> bool:
        """Is anybody in the channel's line?"""

    def join(self, channel: str) -> Place:
        """Take the last place in the channel's line."""

    def listen(self, channel: str, deadline: float) -> None:
        """Return once messages on the channel are sure to arrive."""

    def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken (True) or until the deadline (False)."""

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> None:
        """Give the place up."""


class AsyncWakeups(Protocol):
    """The lines of one event loop and what wakes them."""

    def is_waited_for(self, channel: str) -> bool:
        """Is anybody in the channel's line?"""

    def join(self, channel: str) -> Place:
        """Take the last place in the channel's line."""

    async def listen(self, channel: str, deadline: float) -> None:
        """Return once messages on the channel are sure to arrive."""

    async def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken (True) or until the deadline (False)."""

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> None:
        """Give the place up."""


class Store(Protocol):
    """Where operations run, for threads."""

    clock: Clock

    @property
    def wakeups(self) -> Wakeups:
        """Return the lines of this process."""

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation in one step; raises StoreUnavailable when the local time `deadline` comes first."""

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations that do not depend on each other; one answer or failure each, in their order."""

    def close(self) -> None:
        """Give up every connection."""


class AsyncStore(Protocol):
    """Where operations run, for asyncio."""

    clock: Clock

    @property
    def wakeups(self) -> AsyncWakeups:
        """Return the lines of this event loop."""

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Perform one operation in one step; raises StoreUnavailable when the local time `deadline` comes first."""

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations that do not depend on each other; one answer or failure each, in their order."""

    async def close(self) -> None:
        """Give up every connection."""


def run_sync(plan: Plan[OutcomeT], store: Store) -> OutcomeT:
    """Run a plan in this thread. An exception, also KeyboardInterrupt, reaches the plan, which may clean up first."""
    reply: Any = None
    failure: BaseException | None = None
    while True:
        try:
            effect = plan.send(reply) if failure is None else plan.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the plan's return value is untyped here
        reply, failure = None, None
        try:
            reply = _perform(effect, store)
        except BaseException as error:  # noqa: BLE001  # every exception belongs to the plan
            failure = error


def _perform(effect: Effect[Any], store: Store) -> Any:  # noqa: ANN401  # the answer's type is the effect's parameter
    kind = type(effect)  # the two that every plan has are told by a look, and cost no pattern
    if kind is Now:
        return store.clock.now()
    if kind is Within:
        return store.execute(effect.operation, deadline=effect.deadline)  # type: ignore[attr-defined]  # of Within
    match effect:
        case Operation():
            return store.execute(effect)
        case Batch(operations, deadline):
            return store.execute_many(operations, deadline=deadline)
        case IsWaitedFor(channel):
            return store.wakeups.is_waited_for(channel)
        case Join(channel):
            return store.wakeups.join(channel)
        case Listen(channel, deadline):
            return store.wakeups.listen(channel, deadline)
        case Park(place, due, deadline, offer):
            return store.wakeups.park(place, due, deadline, offer)
        case Leave(place, due, in_time):
            return store.wakeups.leave(place, due, in_time=in_time)
        case _:
            return _refuse(effect)


def _refuse(effect: object) -> NoReturn:
    message = f"no driver performs {effect!r}"
    raise TypeError(message)


async def run_async(plan: Plan[OutcomeT], store: AsyncStore) -> OutcomeT:
    """Run a plan in this task.

    A cancellation that arrives while an operation is under way is delivered to the plan after the operation has ended:
    the plan then knows what it has to undo, and the undoing cannot be overtaken by a request still on the wire. The
    delay is bounded by the store's own time-out.
    """
    reply: Any = None
    failure: BaseException | None = None
    while True:
        try:
            effect = plan.send(reply) if failure is None else plan.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the plan's return value is untyped here
        reply, failure = None, None
        try:
            reply = await _perform_async(effect, store)
        except BaseException as error:  # noqa: BLE001  # every exception belongs to the plan
            failure = error


async def _perform_async(effect: Effect[Any], store: AsyncStore) -> Any:  # noqa: ANN401  # as in _perform
    kind = type(effect)
    if kind is Now:
        return store.clock.now()
    if kind is Within:
        return await _finished(store, partial(store.execute, effect.operation, deadline=effect.deadline))  # type: ignore[attr-defined]  # of Within
    match effect:
        case Operation():
            return await _finished(store, partial(store.execute, effect))
        case Batch(operations, deadline):
            return await _finished(store, partial(store.execute_many, operations, deadline=deadline))
        case IsWaitedFor(channel):
            return store.wakeups.is_waited_for(channel)
        case Join(channel):
            return store.wakeups.join(channel)
        case Listen(channel, deadline):
            return await store.wakeups.listen(channel, deadline)
        case Park(place, due, deadline, offer):
            return await store.wakeups.park(place, due, deadline, offer)
        case Leave(place, due, in_time):
            return store.wakeups.leave(place, due, in_time=in_time)
        case _:
            return _refuse(effect)


async def _finished(store: AsyncStore, ask: Callable[[], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
    if getattr(store, "ends_before_cancelled", False):  # it sees to that by itself, at less cost than a task
        return await ask()
    task = asyncio.create_task(begun(ask))
    try:
        return await asyncio.shield(task)
    except GeneratorExit:  # closed from outside: nobody would clean up what is asked from now on
        if not task.get_loop().is_closed():
            task.cancel()
        raise
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue  # cancelled again: still only the store's time-out ends it
        if not task.cancelled():
            task.exception()  # retrieved, so that no warning is printed; the cancellation is what the plan must see
        raise

"""Drivers: they perform what a plan yields. One body an algorithm runs under each of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from segmented.operations import Effect, Operation
from segmented.plans.effects import Join, Leave, Listen, Now, Park, Plan

if TYPE_CHECKING:
    from segmented.clock import Clock
    from segmented.plans.line import Place

AnswerT = TypeVar("AnswerT")
OutcomeT = TypeVar("OutcomeT")


class Wakeups(Protocol):
    """The lines of one process and what wakes them, for threads."""

    def join(self, channel: str) -> Place:
        """Take the last place in the channel's line."""

    def listen(self, channel: str, deadline: float) -> None:
        """Return once messages on the channel are sure to arrive."""

    def park(self, place: Place, due: float, deadline: float) -> bool:
        """Sleep until woken (True) or until the deadline (False)."""

    def leave(self, place: Place, due: float) -> None:
        """Give the place up."""


class AsyncWakeups(Protocol):
    """The lines of one event loop and what wakes them."""

    def join(self, channel: str) -> Place:
        """Take the last place in the channel's line."""

    async def listen(self, channel: str, deadline: float) -> None:
        """Return once messages on the channel are sure to arrive."""

    async def park(self, place: Place, due: float, deadline: float) -> bool:
        """Sleep until woken (True) or until the deadline (False)."""

    def leave(self, place: Place, due: float) -> None:
        """Give the place up."""


class Store(Protocol):
    """Where operations run, for threads."""

    clock: Clock

    @property
    def wakeups(self) -> Wakeups:
        """Return the lines of this process."""

    def execute(self, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation in one step."""

    def close(self) -> None:
        """Give up every connection."""


class AsyncStore(Protocol):
    """Where operations run, for asyncio."""

    clock: Clock

    @property
    def wakeups(self) -> AsyncWakeups:
        """Return the lines of this event loop."""

    async def execute(self, operation: Operation[AnswerT]) -> AnswerT:
        """Perform one operation in one step."""

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
    match effect:
        case Operation():
            return store.execute(effect)
        case Now():
            return store.clock.now()
        case Join(channel):
            return store.wakeups.join(channel)
        case Listen(channel, deadline):
            return store.wakeups.listen(channel, deadline)
        case Park(place, due, deadline):
            return store.wakeups.park(place, due, deadline)
        case Leave(place, due):
            return store.wakeups.leave(place, due)
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
            match effect:
                case Operation():
                    reply = await _finished(store, effect)
                case Now():
                    reply = store.clock.now()
                case Join(channel):
                    reply = store.wakeups.join(channel)
                case Listen(channel, deadline):
                    await store.wakeups.listen(channel, deadline)
                case Park(place, due, deadline):
                    reply = await store.wakeups.park(place, due, deadline)
                case Leave(place, due):
                    store.wakeups.leave(place, due)
                case _:
                    _refuse(effect)
        except BaseException as error:  # noqa: BLE001  # every exception belongs to the plan
            failure = error


async def _finished(store: AsyncStore, operation: Operation[AnswerT]) -> AnswerT:
    task = asyncio.ensure_future(store.execute(operation))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue  # cancelled again: still only the store's time-out ends it
        if not task.cancelled():
            task.exception()  # retrieved, so that no warning is printed; the cancellation is what the plan must see
        raise

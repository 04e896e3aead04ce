"""Drivers perform the effects that a plan yields. Each algorithm is one plan that runs under every driver."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from segmented.errors import SegmentedError
from segmented.plans.effects import Batch, Join, Leave, Listen, Now, Outside, Park, Plan, Try, Within
from segmented.plans.tasks import to_the_end
from segmented.plans.waiting import ATTEMPT_SECONDS, TRY_SECONDS, leave_for
from segmented.protocol import Effect, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from segmented.clock import Clock
    from segmented.plans.line import Offer, Place

AnswerT = TypeVar("AnswerT")
OutcomeT = TypeVar("OutcomeT")


def _stayed(joined: list[Place], store: Store | AsyncStore) -> list[Place]:
    """Return the places that a plan has not left although it ended, in queues that are whole again."""
    stayed = [place for place in joined if not place.is_over]
    for place in stayed:
        store.wakeups.mend(place)
    return stayed


def _joined(wakeups: Wakeups | AsyncWakeups, channel: str, joined: list[Place]) -> Place:
    joined[:] = [place for place in joined if not place.is_over]  # a plan may wait many times
    return wakeups.join(channel, joined)


def _begin(effect: Try[Any], store: Store | AsyncStore) -> float | None:
    """Note the time of a first attempt, and return its deadline; None if it is to be made from the channel's queue."""
    effect.asked_at = store.clock.now()
    if effect.timeout != 0 and store.wakeups.is_waited_for(effect.channel, or_heard=effect.joins_if_heard):
        return None
    return attempt_deadline(effect)


def attempt_deadline(effect: Try[Any]) -> float:
    """Return the local time at which a first attempt fails that has no answer."""
    if effect.timeout is None:
        return inf
    return effect.asked_at + (max(effect.timeout, ATTEMPT_SECONDS) if effect.timeout else TRY_SECONDS)


def _refuse(effect: object) -> NoReturn:
    raise TypeError(f"no driver performs {effect!r}")


async def run_async(plan: Plan[OutcomeT], store: AsyncStore) -> OutcomeT:
    """Run a plan in this task. The plan receives every exception, also KeyboardInterrupt, so that it can clean up.

    A signal handler may raise at any point: also between two effects, where the plan receives the exception as if the
    last one had failed; in the plan itself; and in the middle of a change of a queue. If the plan ends by an exception
    and has not left a queue that it joined, the driver leaves the queue for it.

    If a cancellation arrives during an operation, the plan receives it after the operation has ended: the plan then
    knows what to undo, and no request still on the wire can overtake the undoing. The store's time-out limits the
    delay.
    """
    joined: list[Place] = []
    reply: Any = None
    failure: BaseException | None = None
    try:
        while True:
            try:
                while True:
                    effect = plan.send(reply) if failure is None else plan.throw(failure)
                    reply, failure = None, None
                    reply = await _perform_async(effect, store, joined)
            except BaseException as error:
                if plan.gi_frame is not None:  # type: ignore[attr-defined]  # it has not ended
                    failure = error
                elif isinstance(error, StopIteration):
                    return error.value  # type: ignore[no-any-return]  # the plan's return value is untyped here
                else:
                    failure = None  # else it would refer to itself, by this frame, and with it to what it has struck
                    raise
    except GeneratorExit:  # the process is ending and cleans nothing up
        raise
    except BaseException:
        if stayed := _stayed(joined, store):
            await run_async(leave_for(stayed), store)
        raise


async def async_run_owed(make: Callable[[], Plan[OutcomeT]], store: AsyncStore) -> OutcomeT:
    """Run a plan that ends orders, to its end even if the caller is cancelled: a customer may have paid."""
    # threads: return run_sync(make(), store)
    return await to_the_end(lambda: run_async(make(), store), owed_to=store)  # asyncio only


async def _perform_async(effect: Effect[Any], store: AsyncStore, joined: list[Place]) -> Any:  # noqa: ANN401  # the answer's type is the effect's parameter
    if isinstance(effect, Try):  # checks of types are cheaper than a pattern for the most frequent effects
        deadline = _begin(effect, store)
        if deadline is None:
            return None
        trying = partial(store.execute, effect.operation, deadline=deadline)  # asyncio only
        return await _finished(store, trying), store.clock.now()  # asyncio only
        # threads: return store.execute(effect.operation, deadline=deadline), store.clock.now()
    if isinstance(effect, Now):
        return store.clock.now()
    match effect:
        case Operation():
            return await _finished(store, partial(store.execute, effect))  # asyncio only
            # threads: return store.execute(effect)
        case Within(operation, deadline):
            return await _finished(store, partial(store.execute, operation, deadline=deadline))  # asyncio only
            # threads: return store.execute(operation, deadline=deadline)
        case Batch(operations, deadline):
            return await _finished(store, partial(store.execute_many, operations, deadline=deadline))  # asyncio only
            # threads: return store.execute_many(operations, deadline=deadline)
        case Outside(ask):
            return await ask()
        case _:
            return await _wait_async(effect, store.wakeups, joined)


async def _wait_async(effect: Effect[Any], wakeups: AsyncWakeups, joined: list[Place]) -> Any:  # noqa: ANN401  # the answer's type is the effect's parameter
    match effect:
        case Join(channel):
            return _joined(wakeups, channel, joined)
        case Listen(channel, deadline):
            return await wakeups.listen(channel, deadline)
        case Park(place, due, deadline, offer):
            return await wakeups.park(place, due, deadline, offer)
        case Leave(place, due, in_time):
            is_last = wakeups.leave(place, due, in_time=in_time)
            place.presence = "gone"
            return is_last
        case _:
            return _refuse(effect)


async def _finished(store: AsyncStore, ask: Callable[[], Coroutine[Any, Any, AnswerT]]) -> AnswerT:
    if getattr(store, "ends_before_cancelled", False):  # the store does that itself, cheaper than a task
        return await ask()
    return await to_the_end(ask)


class AsyncWakeups(Protocol):
    """The waiting queues of this event loop and their wake-ups."""

    def is_waited_for(self, channel: str, *, or_heard: bool = False) -> bool:
        """Return whether the channel's queue has waiters, or with `or_heard` its messages reach this process."""

    def join(self, channel: str, noted: list[Place] | None = None) -> Place:
        """Join the channel's queue at its end; the place is in `noted` before it is in the queue."""

    def mend(self, place: Place) -> None:
        """Repair the place's queue, which an exception may have left half-changed."""

    async def listen(self, channel: str, deadline: float) -> None:
        """Return once the subscription to the channel is confirmed."""

    async def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken (True) or until the deadline (False)."""

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the queue; return whether the process does not wait any more."""


class AsyncStore(Protocol):
    """A store that runs operations, for asyncio."""

    clock: Clock

    @property
    def wakeups(self) -> AsyncWakeups:
        """Return the waiting queues of this event loop."""

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run one operation atomically. Raises StoreUnavailable if the local time `deadline` comes first."""

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Run independent operations and return one answer or failure for each, in their order."""

    async def close(self) -> None:
        """Close all connections."""


async def async_one_by_one(
    store: AsyncStore, operations: Sequence[Operation[AnswerT]], deadline: float
) -> list[AnswerT | SegmentedError]:
    """Perform operations one after the other, for a store that has no round trip to save; one answer or error each."""
    answers: list[AnswerT | SegmentedError] = []
    for operation in operations:
        try:
            answers.append(await store.execute(operation, deadline=deadline))
        except SegmentedError as error:
            answers.append(error)
    return answers


# --- For threads: written by `make sync` from the classes above. ---


def run_sync(plan: Plan[OutcomeT], store: Store) -> OutcomeT:
    """Run a plan in this thread. The plan receives every exception, also KeyboardInterrupt, so that it can clean up.

    A signal handler may raise at any point: also between two effects, where the plan receives the exception as if the
    last one had failed; in the plan itself; and in the middle of a change of a queue. If the plan ends by an exception
    and has not left a queue that it joined, the driver leaves the queue for it.

    If a cancellation arrives during an operation, the plan receives it after the operation has ended: the plan then
    knows what to undo, and no request still on the wire can overtake the undoing. The store's time-out limits the
    delay.
    """
    joined: list[Place] = []
    reply: Any = None
    failure: BaseException | None = None
    try:
        while True:
            try:
                while True:
                    effect = plan.send(reply) if failure is None else plan.throw(failure)
                    reply, failure = None, None
                    reply = _perform(effect, store, joined)
            except BaseException as error:
                if plan.gi_frame is not None:  # type: ignore[attr-defined]  # it has not ended
                    failure = error
                elif isinstance(error, StopIteration):
                    return error.value  # type: ignore[no-any-return]  # the plan's return value is untyped here
                else:
                    failure = None  # else it would refer to itself, by this frame, and with it to what it has struck
                    raise
    except GeneratorExit:  # the process is ending and cleans nothing up
        raise
    except BaseException:
        if stayed := _stayed(joined, store):
            run_sync(leave_for(stayed), store)
        raise


def run_owed(make: Callable[[], Plan[OutcomeT]], store: Store) -> OutcomeT:
    """Run a plan that ends orders, to its end even if the caller is cancelled: a customer may have paid."""
    return run_sync(make(), store)


def _perform(effect: Effect[Any], store: Store, joined: list[Place]) -> Any:  # noqa: ANN401  # the answer's type is the effect's parameter
    if isinstance(effect, Try):  # checks of types are cheaper than a pattern for the most frequent effects
        deadline = _begin(effect, store)
        if deadline is None:
            return None
        return store.execute(effect.operation, deadline=deadline), store.clock.now()
    if isinstance(effect, Now):
        return store.clock.now()
    match effect:
        case Operation():
            return store.execute(effect)
        case Within(operation, deadline):
            return store.execute(operation, deadline=deadline)
        case Batch(operations, deadline):
            return store.execute_many(operations, deadline=deadline)
        case Outside(ask):
            return ask()
        case _:
            return _wait(effect, store.wakeups, joined)


def _wait(effect: Effect[Any], wakeups: Wakeups, joined: list[Place]) -> Any:  # noqa: ANN401  # the answer's type is the effect's parameter
    match effect:
        case Join(channel):
            return _joined(wakeups, channel, joined)
        case Listen(channel, deadline):
            return wakeups.listen(channel, deadline)
        case Park(place, due, deadline, offer):
            return wakeups.park(place, due, deadline, offer)
        case Leave(place, due, in_time):
            is_last = wakeups.leave(place, due, in_time=in_time)
            place.presence = "gone"
            return is_last
        case _:
            return _refuse(effect)


class Wakeups(Protocol):
    """The waiting queues of this process and their wake-ups."""

    def is_waited_for(self, channel: str, *, or_heard: bool = False) -> bool:
        """Return whether the channel's queue has waiters, or with `or_heard` its messages reach this process."""

    def join(self, channel: str, noted: list[Place] | None = None) -> Place:
        """Join the channel's queue at its end; the place is in `noted` before it is in the queue."""

    def mend(self, place: Place) -> None:
        """Repair the place's queue, which an exception may have left half-changed."""

    def listen(self, channel: str, deadline: float) -> None:
        """Return once the subscription to the channel is confirmed."""

    def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken (True) or until the deadline (False)."""

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the queue; return whether the process does not wait any more."""


class Store(Protocol):
    """A store that runs operations, for threads."""

    clock: Clock

    @property
    def wakeups(self) -> Wakeups:
        """Return the waiting queues of this process."""

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run one operation atomically. Raises StoreUnavailable if the local time `deadline` comes first."""

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Run independent operations and return one answer or failure for each, in their order."""

    def close(self) -> None:
        """Close all connections."""


def one_by_one(
    store: Store, operations: Sequence[Operation[AnswerT]], deadline: float
) -> list[AnswerT | SegmentedError]:
    """Perform operations one after the other, for a store that has no round trip to save; one answer or error each."""
    answers: list[AnswerT | SegmentedError] = []
    for operation in operations:
        try:
            answers.append(store.execute(operation, deadline=deadline))
        except SegmentedError as error:
            answers.append(error)
    return answers

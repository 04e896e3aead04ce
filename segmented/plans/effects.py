"""Effects other than one operation: with a deadline, several at once, time, and a place in this process's queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from segmented.errors import SegmentedError
from segmented.protocol import Effect, Operation
from segmented.values import light_dataclass

if TYPE_CHECKING:
    from segmented.plans.line import Offer, Place

AnswerT = TypeVar("AnswerT")
OutcomeT = TypeVar("OutcomeT")
Plan = Generator[Effect[Any], Any, AnswerT]
"""A generator that yields effects, receives their answers, and returns the protocol's outcome."""


def perform(effect: Effect[AnswerT]) -> Plan[AnswerT]:
    """Yield one effect and return its answer, with its type."""
    answer: AnswerT = yield effect
    return answer


def substituted(plan: Plan[OutcomeT], plan_of: Callable[[Effect[Any]], Plan[Any]]) -> Plan[OutcomeT]:
    """Run a plan; the plan that `plan_of` returns performs each of its effects."""
    reply: Any = None
    failure: BaseException | None = None
    while True:
        try:
            effect = plan.send(reply) if failure is None else plan.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the plan's return value is untyped here
        reply, failure = None, None
        try:
            reply = yield from plan_of(effect)
        except GeneratorExit:
            plan.close()
            raise
        except BaseException as error:  # noqa: BLE001  # the plan handles every exception
            failure = error


@dataclass(slots=True)  # not frozen: each wait creates one, and the driver notes the time
class Try(Effect[tuple[AnswerT, float] | None]):
    """Make the first attempt of a wait: read the clock, run the operation, and read the clock again, in one effect.

    Returns the answer and the local time after it; None, without an attempt, if others in this process wait for the
    channel or, with `joins_if_heard`, if its messages reach this process already. With a timeout of 0 it is the only
    attempt, and is made in any case.
    """

    operation: Operation[AnswerT]
    channel: str
    timeout: float | None
    """How long the whole wait may take, in seconds; None for no limit."""
    joins_if_heard: bool = False
    """An attempt from a place in the queue needs no second one, if a message could not have been missed."""
    asked_at: float = field(default=0.0, compare=False)
    """The local time just before the attempt; the driver sets it."""


@light_dataclass(frozen=True, slots=True)
class Within(Effect[AnswerT]):
    """Run one operation, including transport retries, until the local time `deadline`, then raise StoreUnavailable."""

    operation: Operation[AnswerT]
    deadline: float


@light_dataclass(frozen=True, slots=True)
class Batch(Effect[list[AnswerT | SegmentedError]]):
    """Run independent operations in few round trips; each has its own answer or failure."""

    operations: tuple[Operation[AnswerT], ...]
    deadline: float


@light_dataclass(frozen=True, slots=True)
class Outside(Effect[AnswerT]):
    """Ask something other than the store, such as an order database: call `ask`, and with asyncio await its answer."""

    ask: Callable[[], AnswerT | Awaitable[AnswerT]]


@light_dataclass(frozen=True, slots=True)
class Now(Effect[float]):
    """Read the local monotonic clock, in seconds."""


@light_dataclass(frozen=True, slots=True)
class Join(Effect["Place"]):
    """Join a channel's queue at its end. The place says whether others are ahead."""

    channel: str


@light_dataclass(frozen=True, slots=True)
class Listen(Effect[None]):
    """Return once the subscription to the channel is confirmed; raise if it is not by the deadline."""

    channel: str
    deadline: float


@light_dataclass(frozen=True, slots=True)
class Park(Effect[bool]):
    """Sleep until a wake-up for this place (True), or until the deadline (False).

    `due` is the local time at which the awaited lock may be free without a message; only the head of the queue wakes
    then. Both are monotonic seconds and may be infinite. With an `offer`, another caller in this process may make the
    waiter's attempt; the place then holds the answer.
    """

    place: Place
    due: float
    deadline: float
    offer: Offer | None = None


@light_dataclass(frozen=True, slots=True)
class Leave(Effect[bool]):
    """Leave the queue; an unused wake-up goes to the next waiter, which also gets the new `due`.

    If not `in_time`, the waiter was cancelled, so an attempt that another caller is making for it must be undone.
    Returns whether the process does not wait any more: no waiter is left, and nobody makes an attempt for this one.
    """

    place: Place
    due: float
    in_time: bool = True

"""Effects other than one operation: with a deadline, several at once, time, and a place in this process's queue."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from segmented.errors import SegmentedError
from segmented.protocol import Effect, Operation

if TYPE_CHECKING:
    from segmented.plans.line import Offer, Place

AnswerT = TypeVar("AnswerT")
Plan = Generator[Effect[Any], Any, AnswerT]
"""A generator that yields effects, receives their answers, and returns the protocol's outcome."""


def perform(effect: Effect[AnswerT]) -> Plan[AnswerT]:
    """Yield one effect and return its answer, with its type."""
    answer: AnswerT = yield effect
    return answer


@dataclass(frozen=True, slots=True)
class Within(Effect[AnswerT]):
    """Run one operation, including transport retries, until the local time `deadline`, then raise StoreUnavailable."""

    operation: Operation[AnswerT]
    deadline: float


@dataclass(frozen=True, slots=True)
class Batch(Effect[list[AnswerT | SegmentedError]]):
    """Run independent operations in few round trips; each has its own answer or failure."""

    operations: tuple[Operation[AnswerT], ...]
    deadline: float


@dataclass(frozen=True, slots=True)
class Now(Effect[float]):
    """Read the local monotonic clock, in seconds."""


@dataclass(frozen=True, slots=True)
class IsWaitedFor(Effect[bool]):
    """Ask whether a channel's queue has waiters: if not, a caller may try without joining it."""

    channel: str


@dataclass(frozen=True, slots=True)
class Join(Effect["Place"]):
    """Join a channel's queue at its end. The place says whether others are ahead."""

    channel: str


@dataclass(frozen=True, slots=True)
class Listen(Effect[None]):
    """Return once the subscription to the channel is confirmed; raise if it is not by the deadline."""

    channel: str
    deadline: float


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Leave(Effect[None]):
    """Leave the queue; an unused wake-up goes to the next waiter, which also gets the new `due`.

    If not `in_time`, the waiter was cancelled, so an attempt that another caller is making for it must be undone.
    """

    place: Place
    due: float
    in_time: bool = True

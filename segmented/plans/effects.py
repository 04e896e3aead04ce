"""Effects beyond one operation: a deadline for it, several at once, time, and a place in this process's line."""

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
"""A generator that yields effects, is sent their answers, and returns the protocol's outcome."""


def perform(effect: Effect[AnswerT]) -> Plan[AnswerT]:
    """Yield one effect and return its answer, with its type."""
    answer: AnswerT = yield effect
    return answer


@dataclass(frozen=True, slots=True)
class Within(Effect[AnswerT]):
    """Perform one operation, retries of the transport included, by the local time `deadline`, else StoreUnavailable."""

    operation: Operation[AnswerT]
    deadline: float


@dataclass(frozen=True, slots=True)
class Batch(Effect[list[AnswerT | SegmentedError]]):
    """Perform operations that do not depend on each other, in few round trips; each has its own answer or failure."""

    operations: tuple[Operation[AnswerT], ...]
    deadline: float


@dataclass(frozen=True, slots=True)
class Now(Effect[float]):
    """Read the local monotonic clock, in seconds."""


@dataclass(frozen=True, slots=True)
class IsWaitedFor(Effect[bool]):
    """Ask whether anybody is in the line for a channel: if not, one may try without joining it."""

    channel: str


@dataclass(frozen=True, slots=True)
class Join(Effect["Place"]):
    """Take the last place in the line for a channel. The place says whether others are ahead."""

    channel: str


@dataclass(frozen=True, slots=True)
class Listen(Effect[None]):
    """Return once messages on the channel are sure to arrive here; raise if that is not so by the deadline."""

    channel: str
    deadline: float


@dataclass(frozen=True, slots=True)
class Park(Effect[bool]):
    """Sleep until a wake-up for this place (True), or until the deadline (False).

    `due` is the local time at which the thing waited for may be free without any message; only the head of the line
    wakes then. Both are monotonic seconds and may be infinite. With an `offer` somebody else of this process may make
    the waiter's attempt: the answer is then found in the place.
    """

    place: Place
    due: float
    deadline: float
    offer: Offer | None = None


@dataclass(frozen=True, slots=True)
class Leave(Effect[None]):
    """Give the place up; a wake-up that was not used goes to the next in line, which also learns the new `due`.

    Not `in_time`: the waiter was cancelled, so an attempt that somebody is making for it is to be undone.
    """

    place: Place
    due: float
    in_time: bool = True

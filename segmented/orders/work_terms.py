"""What a worker and its steps may say about the time an order takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput, SegmentedError
from segmented.locks.call_keys import name_of, shape_of
from segmented.locks.durations import checked_timeout, milliseconds
from segmented.stock.outbox import BEGUN_MAX, PUBLISH_AFTER, checked_begun_max
from segmented.stock.settings import DEFAULT_HOLD

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models.submitted import BegunOrder

ENVELOPE_TTL: Final = 5.0
LATER: Final = 2.0
"""Seconds until an order is tried again that could not be tried: a server was away, no segment was free."""


class TryLater(SegmentedError):
    """A step cannot work now, through no fault of the order: it does not count towards the dead-letter set."""

    def __init__(self, reason: str, *, seconds: float = LATER) -> None:
        """Say why, and how long to wait. Raises InvalidInput for no such time."""
        milliseconds(seconds, "seconds")
        super().__init__(reason)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class WorkTerms:
    """How a worker takes envelopes. Times are seconds."""

    ttl: float = ENVELOPE_TTL
    """For which the segment's lease lives."""
    hold: float = DEFAULT_HOLD
    """For which units stay reserved whose order is in no outbox, or dead; no less than `work`, or they would be sold to
    others meanwhile."""
    work: float = PUBLISH_AFTER
    """For which orders are this worker's; pushed out while a step or the database works, so that it may last longer."""
    begun_max: int = BEGUN_MAX
    """An order that was begun so often, and not finished, goes to the dead-letter set."""
    segment_wait: float = 5.0
    """For which a free segment is waited for."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("ttl", "hold", "work"):
            milliseconds(getattr(self, name), name)
        checked_timeout(self.segment_wait)
        if self.hold < max(self.ttl, self.work):
            message = f"hold={self.hold:g} s is shorter than ttl={self.ttl:g} s or work={self.work:g} s"
            raise InvalidInput(message)
        checked_begun_max(self.begun_max)


def checked_step(step: Callable[[BegunOrder], None] | None) -> None:
    """Raise InvalidInput for a step whose call would only make a coroutine or a generator, so that nothing is done."""
    if step is not None and (shape := shape_of(step)) != "function":
        message = f"the step {name_of(step)} is a {shape}, and calling it would run nothing"
        raise InvalidInput(message)

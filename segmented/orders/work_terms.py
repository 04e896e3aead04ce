"""The terms of a worker's envelope: its ids, the times of its orders, putting off, why one failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import InvalidInput, SegmentedError
from segmented.locks.call_keys import name_of, shape_of
from segmented.locks.durations import checked_timeout, milliseconds
from segmented.models import UNASSIGNED, Assignment, checked_id, shortened
from segmented.models.submitted import one_line
from segmented.stock.outbox import BEGUN_MAX, PUBLISH_AFTER, checked_begun_max
from segmented.stock.settings import DEFAULT_HOLD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.clock import Duration

ENVELOPE_TTL: Final = 5.0
LATER: Final = 2.0
"""Seconds until the next try of an order that could not be tried: a server was unavailable, no segment was free."""


class TryLater(SegmentedError):
    """A step cannot work now, through no fault of the order: it does not count towards the dead-letter set."""

    def __init__(self, reason: str, seconds: float = LATER) -> None:
        """Create with the reason and the time to wait. Raises InvalidInput for an invalid time."""
        milliseconds(seconds, "seconds")
        super().__init__(reason)
        self.seconds = seconds


class Decline(SegmentedError):
    """A step refuses an order for good, such as for a card that the bank refused: its units are free at once."""

    def __init__(self, reason: str) -> None:
        """Create with the reason, which the report and the worker's log have."""
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class WorkTerms:
    """How a worker takes envelopes. Times are in seconds."""

    ttl: Duration = ENVELOPE_TTL
    """Lifetime of the segment's lease."""
    hold: Duration = DEFAULT_HOLD
    """How long units stay reserved for an order that is in no outbox, or dead; at least `work`, so that nobody else
    gets them.
    """
    work: Duration = PUBLISH_AFTER
    """How long orders belong to this worker; extended while a step or the database works."""
    begun_max: int = BEGUN_MAX
    """An order that was begun this often and not finished goes to the dead-letter set."""
    segment_timeout: Duration = 5.0
    """How long to wait for a free segment."""
    assignment: Assignment = UNASSIGNED
    """Queue of this worker, and name of its step: a pool that names others leaves its orders to other workers."""
    ttl_ms: int = field(init=False, repr=False, compare=False)
    hold_ms: int = field(init=False, repr=False, compare=False)
    work_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise InvalidInput for invalid settings."""
        for name in ("ttl", "hold", "work"):
            object.__setattr__(self, f"{name}_ms", milliseconds(getattr(self, name), name))
        checked_timeout(self.segment_timeout)
        if self.hold_ms < max(self.ttl_ms, self.work_ms):
            hold, ttl, work = (ms / 1000 for ms in (self.hold_ms, self.ttl_ms, self.work_ms))
            raise InvalidInput(f"hold={hold:g} s is shorter than ttl={ttl:g} s or work={work:g} s")
        checked_begun_max(self.begun_max)


DEFAULT_TERMS: Final = WorkTerms()


def checked_step(step: Callable[..., object] | None) -> None:
    """Raise InvalidInput for a step whose call would only create a coroutine or a generator and do nothing."""
    if step is not None and (shape := shape_of(step)) != "function":
        raise InvalidInput(f"the step {name_of(step)} is a {shape}, and calling it would run nothing")


def checked_ids(order_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of an envelope, each once. Raises InvalidInput."""
    if isinstance(order_ids, str):
        raise InvalidInput(f"{shortened(order_ids)} is a single order id; give an envelope's order ids as a list")
    ids = tuple(dict.fromkeys(checked_id(order_id, "order id") for order_id in order_ids))
    if not 1 <= len(ids) <= op.BATCH_MAX:
        raise InvalidInput(f"an envelope has 1 to {op.BATCH_MAX:,} orders, not {len(ids):,}")
    return ids


def told(error: BaseException) -> str:
    """Describe an order's failure in one line; a user's exception may fail to describe itself."""
    try:
        return one_line(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001  # no error may affect the envelope
        return type(error).__name__


def declined_for(declined: Decline) -> str:
    """Return the reason of a decline."""
    return told(declined).partition(": ")[2]

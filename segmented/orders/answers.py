"""The durable gate's named answers, and the rows it reads. All are frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from segmented.orders.tables import VOID

if TYPE_CHECKING:
    from datetime import datetime

    from segmented.models import OrderState


State = Literal["begun", "done", "undone"]
"""State of a change: one side may lack it; both have it; the pool has refused it for good."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The sku's segment rows are stored."""

    stock: int
    segment_count: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AlreadyOpen:
    """The sku already had rows, which may differ from the requested ones; nothing changed."""

    stock: int
    segment_count: int
    sold: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The order is final and durable."""

    replay: bool
    """True if it was already confirmed: nothing changed."""
    sequence: int = field(default=0, compare=False)
    """The pool's highest change that the segment's row knows of in this epoch; 0 for a replay."""


@dataclass(frozen=True, slots=True)
class Voided:
    """The order can never be confirmed; its units may be returned."""

    replay: bool
    """True if it was already void: nothing changed."""


@dataclass(frozen=True, slots=True)
class AlreadyConfirmed:
    """The order was already confirmed, so it cannot be voided; its units stay sold."""


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no row for this sku and segment; nothing changed."""


@dataclass(frozen=True, slots=True)
class EpochChanged:
    """The rows are in another epoch than the caller: Redis was rebuilt, or must be. Nothing changed."""

    epoch: int
    """The database's epoch."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """A later grant of this segment reached the database first; nothing changed. The units stay reserved: try again."""

    fence: int
    """The highest fencing token the segment's row has accepted."""


@dataclass(frozen=True, slots=True)
class SoldOut:
    """All segments of the sku together had fewer units left than requested; nothing changed."""

    total: int
    sold: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The change, or the segments, are stored."""

    replay: bool
    """True if they were already stored: nothing changed."""
    state: State
    epoch: int
    """Epoch of the pool that had the change last."""


@dataclass(frozen=True, slots=True)
class TooFewUnsold:
    """The rows have fewer unsold units than the withdrawal needs; nothing changed."""

    total: int
    sold: int


ConfirmAnswer = Confirmed | Voided | Missing | EpochChanged | Superseded | SoldOut
VoidAnswer = Voided | AlreadyConfirmed
ChangeAnswer = Stored | Missing | EpochChanged


@dataclass(frozen=True, slots=True)
class OrderRow:
    """One order as stored. A void order has neither segment nor epoch; `fence` is None off the grant path."""

    sku: str
    order_id: str
    state: Literal["confirmed", "void"]
    quantity: int
    segment: int | None
    fence: int | None
    epoch: int | None
    customer_id: str | None
    created_at: datetime
    """Time by the database's clock, in UTC."""
    reason: str | None = None
    """Why a step declined the order."""


def stored_as(state: str, segment: int | None) -> OrderState:
    """Return how an order with this row has ended. A void order has no segment, unless all of it was returned."""
    if state != VOID:
        return "confirmed"
    return "cancelled" if segment is None else "returned"


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One segment as stored."""

    segment: int
    quota: int
    sold: int
    fence: int
    epoch: int
    sequence: int = 0
    """The highest change of the pool, in this epoch, of an order that was confirmed here; 0 if none is known."""


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One restock or withdrawal as stored."""

    change_id: str
    kind: Literal["restocked", "withdrawn"]
    units: int
    state: State
    epoch: int
    created_at: datetime
    """Time by the database's clock, in UTC."""


@dataclass(frozen=True, slots=True)
class SaleTerms:
    """The terms on which a pool was opened, for one whose keys are lost."""

    limit_per_customer: int | None
    profile: str
    queue: str | None
    step: str | None


@dataclass(frozen=True, slots=True)
class Return:
    """A return, as its caller requests it."""

    sku: str
    order_id: str
    units: int
    return_id: str


@dataclass(frozen=True, slots=True)
class SegmentTotals:
    """A sku's segments read in one step; none if it was never opened."""

    quota: int
    sold: int
    segments: tuple[SegmentRow, ...]
    sale_id: str = field(default="", compare=False)
    """Identity of the sale, which its pool has noted; empty if it has none."""
    returning: tuple[Return, ...] = field(default=(), compare=False)
    """Returns that the pool may lack, if the epoch was raised in this step."""

    @property
    def sequence(self) -> int:
        """Return the highest change of the pool that a confirmed order carried; 0 if none is known."""
        return max((row.sequence for row in self.segments), default=0)

    @property
    def epoch(self) -> int:
        """Return the latest epoch of a segment; 0 if there is no segment."""
        return max((row.epoch for row in self.segments), default=0)

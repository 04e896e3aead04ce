"""Explain why a confirm changed nothing. Pure functions of one atomic read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from segmented.models.orders import check_content
from segmented.orders.answers import (
    AlreadyConfirmed,
    Confirmed,
    EpochChanged,
    Missing,
    SoldOut,
    Superseded,
    Voided,
)
from segmented.orders.tables import VOID

if TYPE_CHECKING:
    from segmented.models import Order, OrderRecord
    from segmented.models.submitted import BegunOrder
    from segmented.orders.answers import ConfirmAnswer, OrderRow, SegmentRow, VoidAnswer


@dataclass(frozen=True, slots=True)
class Claim:
    """The order that a caller wants confirmed, and its authority: the arguments of `Gate.confirm` as one value.

    Segment, epoch and fence are checked only by the database.
    """

    order: Order
    sku: str
    segment: int
    epoch: int
    fence: int | None = None
    """The grant's fencing token; None for a reservation, which has none."""
    asked: int | None = None
    """Units asked for by a partial order: any smaller number may be stored."""
    sequence: int = 0
    """The pool's change that took the units: a pool that is behind it has lost changes. 0: unknown."""


def in_part(order: Order, quantity: int) -> tuple[Order, int | None]:
    """Return the order with the units that it took, and how many it asked for if it took fewer."""
    return (order, None) if order.quantity == quantity else (replace(order, quantity=quantity), order.quantity)


def claim_of(sku: str, begun: BegunOrder) -> Claim:
    """Return the claim of a worker that has begun an order."""
    order, asked = in_part(begun.order, begun.quantity)
    return Claim(order, sku, begun.segment, begun.epoch, begun.fencing_token, asked, begun.sequence)


def claim_of_record(sku: str, record: OrderRecord, epoch: int) -> Claim:
    """Return the claim to an order that a pool of this epoch has reserved, or sold."""
    order, asked = in_part(record.order, record.quantity)
    return Claim(order, sku, record.segment, epoch, None, asked, record.sequence)


@dataclass(frozen=True, slots=True)
class Standing:
    """The order's row, its segment's row and the sku's totals, read atomically. None: the row does not exist."""

    state: str | None
    quantity: int | None
    customer_id: str | None
    row_epoch: int | None
    row_fence: int | None
    total: int
    sold: int

    @classmethod
    def of(cls, order: Any, row: SegmentRow | None, *, total: int, sold: int) -> Standing:  # noqa: ANN401  # a row with these columns, or None
        """Return it of these rows."""
        return cls(
            state=None if order is None else order.state,
            quantity=None if order is None else order.quantity,
            customer_id=None if order is None else order.customer_id,
            row_epoch=None if row is None else row.epoch,
            row_fence=None if row is None else row.fence,
            total=total,
            sold=sold,
        )


def classify(claim: Claim, standing: Standing) -> ConfirmAnswer | None:
    """Return the answer, or None when the sku has units left and only this segment's row may be full.

    In order of precedence:
    1. the order is decided: that answer, whatever has become of the segment; a void id is void with any content;
    2. Missing, EpochChanged, Superseded: the caller has no authority (any more), so it learns nothing about stock;
    3. SoldOut: exact at the time of the read, because moves keep the sum and `sold` never falls.

    Raises OrderMismatch.
    """
    if standing.state == VOID:
        return Voided(replay=True)
    if standing.state is not None:
        check_same(claim.order, standing, claim.asked)
        return Confirmed(replay=True)
    if standing.row_epoch is None:
        return Missing()
    if standing.row_epoch != claim.epoch:
        return EpochChanged(standing.row_epoch)
    if claim.fence is not None and standing.row_fence is not None and standing.row_fence > claim.fence:
        return Superseded(standing.row_fence)
    if standing.total - standing.sold < claim.order.quantity:
        return SoldOut(standing.total, standing.sold)
    return None


def fate(order: Order, standing: Standing, asked: int | None = None) -> VoidAnswer:
    """Return the answer to a void of an order that has a row. Raises OrderMismatch."""
    if standing.state == VOID:
        return Voided(replay=True)
    check_same(order, standing, asked)
    return AlreadyConfirmed()


def check_same(order: Order, standing: Standing | OrderRow, asked: int | None) -> None:
    """Refuse other content under a known id. Customers are compared if both sides name one."""
    is_part = asked is not None and standing.quantity is not None and standing.quantity <= asked
    are_named = None not in (order.customer_id, standing.customer_id)
    check_content(
        order,
        order.quantity if is_part else standing.quantity,
        standing.customer_id if are_named else order.customer_id,
    )

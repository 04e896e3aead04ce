"""Decide an order or an envelope of orders, and how quota moves. Pure functions of rows; the gate executes the result.

Each order of an envelope is decided as if alone: the ones before have already taken their units, raised the fence and
moved the quota. A restock or a withdrawal also changes the quota of the segments' rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from segmented.errors import OrderMismatch
from segmented.models.ids import plural
from segmented.models.orders import check_content
from segmented.orders.answers import AlreadyConfirmed, Confirmed, EpochChanged, Missing, SoldOut, Superseded, Voided
from segmented.orders.tables import CONFIRMED, VOID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """The stored content with which a repeat of an order is compared."""

    state: str
    quantity: int
    customer_id: str | None


@dataclass(frozen=True, slots=True)
class RowChange:
    """A segment's row as it was read, and its new state."""

    before: SegmentRow
    after: SegmentRow


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer for each claim, and the writes that make them true: all of them, or none."""

    answers: tuple[ConfirmAnswer | OrderMismatch, ...]
    changes: tuple[RowChange, ...]
    """The changed rows, in segment order."""
    confirmed: tuple[Claim, ...]
    """The new orders."""


def decide(
    claims: Iterable[Claim], rows: Sequence[SegmentRow], orders: Mapping[str, StoredOrder], *, are_all_rows: bool
) -> Decision | None:
    """Decide what `confirm` would answer to each claim in turn.

    `rows` are the segments that the claims name, ascending, or all of the sku; `orders` are the stored ones among the
    claims' ids. Returns None if some segment has too few units, which can only be decided with all rows.
    """
    books = _Books(rows, orders, are_all_rows=are_all_rows)
    answers: list[ConfirmAnswer | OrderMismatch] = []
    for claim in claims:
        try:
            answer = books.confirm(claim)
        except OrderMismatch as error:
            answers.append(error)
            continue
        if answer is None:
            return None
        answers.append(answer)
    changes = (RowChange(row, books.rows[row.segment]) for row in rows if books.rows[row.segment] != row)
    return Decision(tuple(answers), tuple(changes), tuple(books.confirmed))


class _Books:
    """Rows and orders after the claims so far."""

    def __init__(self, rows: Sequence[SegmentRow], orders: Mapping[str, StoredOrder], *, are_all_rows: bool) -> None:
        self.rows = {row.segment: row for row in rows}
        self.confirmed: list[Claim] = []
        self._orders = dict(orders)
        self._are_all_rows = are_all_rows
        self._total = sum(row.quota for row in rows)
        self._sold = sum(row.sold for row in rows)

    def confirm(self, claim: Claim) -> ConfirmAnswer | None:
        """Return the answer; None if it depends on rows that were not read. Raises OrderMismatch."""
        answer = classify(claim, self._standing(claim))
        if isinstance(answer, SoldOut) and not self._are_all_rows:
            return None
        if answer is not None:
            return answer
        row = self.rows[claim.segment]
        if row.sold + claim.order.quantity > row.quota:
            if not self._are_all_rows:
                return None
            self._move_quota(claim)
        self._take(claim)
        return Confirmed(replay=False, sequence=self.rows[claim.segment].sequence)

    def _standing(self, claim: Claim) -> Standing:
        order = self._orders.get(claim.order.order_id)
        row = self.rows.get(claim.segment)
        return Standing.of(order, row, total=self._total, sold=self._sold)

    def _move_quota(self, claim: Claim) -> None:
        for move in plan_moves(tuple(self.rows.values()), claim.segment, claim.order.quantity):
            row = self.rows[move.segment]
            self.rows[move.segment] = replace(row, quota=row.quota + move.change)

    def _take(self, claim: Claim) -> None:
        order, row = claim.order, self.rows[claim.segment]
        fence = row.fence if claim.fence is None else claim.fence  # never lower: that claim would be superseded
        sequence = max(row.sequence, claim.sequence)
        self.rows[claim.segment] = replace(row, sold=row.sold + order.quantity, fence=fence, sequence=sequence)
        self._sold += order.quantity
        self._orders[order.order_id] = StoredOrder(CONFIRMED, order.quantity, order.customer_id)
        self.confirmed.append(claim)


@dataclass(frozen=True, slots=True)
class QuotaMove:
    """Change one segment's quota by `change`, which is negative if units are taken."""

    segment: int
    change: int


def plan_moves(rows: Sequence[SegmentRow], segment: int, quantity: int) -> tuple[QuotaMove, ...]:
    """Return changes that sum to 0 and leave `segment` with at least `quantity` spare units, in segment order.

    The fullest rows give first, and the first of them gives half of its units even if fewer would do: otherwise every
    later order of a full segment would lock all rows again. If nothing is missing, there are no changes. Raises
    ValueError when all rows together have too few, which the caller must check before.
    """
    spare = {row.segment: row.quota - row.sold for row in rows}
    missing = quantity - spare.pop(segment)
    if missing <= 0:
        return ()
    if missing > sum(spare.values()):
        lacking = f"{missing} {plural(missing, 'unit')}"
        raise ValueError(f"segment {segment} lacks {lacking}, and the others have {sum(spare.values())}")
    changes: dict[int, int] = {}
    for giver, units in sorted(spare.items(), key=lambda item: (-item[1], item[0])):
        given = min(units, missing) if changes else min(units, max(missing, units // 2))
        changes[giver] = -given
        missing -= given
        if missing <= 0:
            break
    assert missing <= 0, "all rows together have enough, as checked above"
    changes[segment] = -sum(changes.values())
    return tuple(QuotaMove(number, change) for number, change in sorted(changes.items()))


def plan_restock(rows: Sequence[SegmentRow], units: int, segment_count: int) -> tuple[QuotaMove, ...]:
    """Return changes that sum to `units`, even over the first `segment_count` segments, of those that have rows."""
    open_ones = [row.segment for row in rows if row.segment < segment_count] or [rows[0].segment]
    base, extra = divmod(units, len(open_ones))
    shares = [base + (place < extra) for place in range(len(open_ones))]
    assert sum(shares) == units, "a split of units neither creates nor loses one"
    return tuple(QuotaMove(segment, share) for segment, share in zip(open_ones, shares, strict=True) if share)


def plan_withdrawal(rows: Sequence[SegmentRow], units: int) -> tuple[QuotaMove, ...]:
    """Return changes that sum to -`units`, each row giving in proportion to what it has left, in segment order.

    Raises ValueError when all rows together have fewer left, which the caller must check before.
    """
    spare = {row.segment: row.quota - row.sold for row in rows}
    total = sum(spare.values())
    if units > total:
        raise ValueError(f"{units} {plural(units, 'unit')} should be withdrawn, but the rows have {total}")
    taken = {segment: units * left // total if total else 0 for segment, left in spare.items()}
    missing = units - sum(taken.values())
    for segment, left in spare.items():  # rounding down left fewer units than rows with some left
        if missing and taken[segment] < left:
            taken[segment] += 1
            missing -= 1
    assert missing == 0, "a row with some left gives at most one unit more than its share"
    return tuple(QuotaMove(segment, -given) for segment, given in taken.items() if given)

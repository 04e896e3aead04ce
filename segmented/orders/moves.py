"""How quota moves between segments' rows, and where a restock or a withdrawal changes it. Pure: the gate acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.orders.answers import SegmentRow


@dataclass(frozen=True, slots=True)
class QuotaMove:
    """Change one segment's quota by `change`, which is negative where units are taken."""

    segment: int
    change: int


def plan_moves(rows: Sequence[SegmentRow], segment: int, quantity: int) -> tuple[QuotaMove, ...]:
    """Return changes that sum to 0 and leave `segment` with at least `quantity` spare units, in segment order.

    The richest rows give first, and the first of them gives half of what it has even if less would do: else every later
    order of a full segment would lock all rows again. Nothing to do is no change. Raises ValueError when all rows
    together have less, which the caller has to find out before.
    """
    spare = {row.segment: row.quota - row.sold for row in rows}
    missing = quantity - spare.pop(segment)
    if missing <= 0:
        return ()
    if missing > sum(spare.values()):
        message = f"segment {segment} misses {missing} units and the others have {sum(spare.values())}"
        raise ValueError(message)
    changes: dict[int, int] = {}
    for giver, units in sorted(spare.items(), key=lambda item: (-item[1], item[0])):
        given = min(units, missing) if changes else min(units, max(missing, units // 2))
        changes[giver] = -given
        missing -= given
        if missing <= 0:
            break
    changes[segment] = -sum(changes.values())
    return tuple(QuotaMove(number, change) for number, change in sorted(changes.items()))


def plan_restock(rows: Sequence[SegmentRow], units: int, segment_count: int) -> tuple[QuotaMove, ...]:
    """Return changes that sum to `units`, even over the first `segment_count` segments, of those that have rows."""
    open_ones = [row.segment for row in rows if row.segment < segment_count] or [rows[0].segment]
    base, extra = divmod(units, len(open_ones))
    shares = [base + (place < extra) for place in range(len(open_ones))]
    return tuple(QuotaMove(segment, share) for segment, share in zip(open_ones, shares, strict=True) if share)


def plan_withdrawal(rows: Sequence[SegmentRow], units: int) -> tuple[QuotaMove, ...]:
    """Return changes that sum to -`units`, each row giving in proportion to what it has left, in segment order.

    Raises ValueError when all rows together have less left, which the caller has to find out before.
    """
    spare = {row.segment: row.quota - row.sold for row in rows}
    total = sum(spare.values())
    if units > total:
        message = f"{units} units are to be withdrawn and the rows have {total}"
        raise ValueError(message)
    taken = {segment: units * left // total if total else 0 for segment, left in spare.items()}
    missing = units - sum(taken.values())
    for segment, left in spare.items():  # rounding down left fewer units than rows with some left
        if missing and taken[segment] < left:
            taken[segment] += 1
            missing -= 1
    return tuple(QuotaMove(segment, -given) for segment, given in taken.items() if given)

"""Where quota comes from when one segment's row is full and others are not. Pure: it decides, the gate acts."""

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

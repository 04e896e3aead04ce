"""PostgreSQL, K rows: a random row first; if it is exhausted, the next one that is not.

Units only decrease, and only committed changes are visible, so a row read as exhausted stays so. Its fault: an order
for several units is refused if no single row has enough, although together they have.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from bench.strategies.pg_hot_row import PgHotRow

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from bench.strategies.base import Guarantees
    from segmented.models import Order


class PgRows(PgHotRow):
    """As many rows as configured."""

    name: ClassVar[str] = "pg-rows"
    summary: ClassVar[str] = "PostgreSQL: K rows, one at random and then the next, the slow step in its transaction"
    has_segments: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(PgHotRow.guarantees, sold_out_is_exact=False, section="one a segment")

    @property
    def segments(self) -> int:
        """As many as configured."""
        return self.context.segments

    @property
    def lanes(self) -> int:
        """One per row, or fewer if there are fewer buyers."""
        return min(self.segments, self.context.buyers)

    def _take(self, connection: Connection, order: Order) -> int | None:
        row = random.randrange(self.segments)  # not a secret; the run's seed repeats it
        while not self._take_from(connection, row, order):
            left = self._left(connection)
            following = [(row + step) % self.segments for step in range(1, self.segments + 1)]
            row = next((other for other in following if left[other] >= order.quantity), -1)
            if row < 0:
                return None
        return row

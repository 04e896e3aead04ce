"""PostgreSQL, K rows: a random row first; if it is exhausted, the next one that is not.

Units only decrease, and only committed changes are visible, so a row read as exhausted stays so. Its fault: an order
for several units is refused if no single row has enough, although together they have.

PostgreSQL, one row: a conditional UPDATE locks it, and the slow step is in the same transaction.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from sqlalchemy import bindparam, insert, select, update

from bench.strategies.counted import split
from bench.strategies.sql_stock import SqlStrategy, sql_rows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from bench.strategies.base import Guarantees
    from segmented.models import Order

TAKE: Final = (
    update(sql_rows)
    .where(
        sql_rows.c.sku == bindparam("given_sku"),
        sql_rows.c.row == bindparam("given_row"),
        sql_rows.c.available >= bindparam("wanted"),
    )
    .values(available=sql_rows.c.available - bindparam("wanted"))
)
"""The statement waits for the row's lock and then checks again, so refusals are exact."""


class PgHotRow(SqlStrategy):
    """One row for the whole stock."""

    name: ClassVar[str] = "pg-hot-row"
    summary: ClassVar[str] = "PostgreSQL: one row with a conditional UPDATE, the slow step in its transaction"

    def _put(self, connection: Connection) -> None:
        shares = enumerate(split(self._stock, self.segments))
        rows = [{"sku": self._sku, "row": row, "available": units} for row, units in shares]
        connection.execute(insert(sql_rows), rows)

    def _take_from(self, connection: Connection, row: int, order: Order) -> bool:
        values = {"given_sku": self._sku, "given_row": row, "wanted": order.quantity}
        return connection.execute(TAKE, values).rowcount == 1

    def _take(self, connection: Connection, order: Order) -> int | None:
        return 0 if self._take_from(connection, 0, order) else None

    def _left(self, connection: Connection) -> tuple[int, ...]:
        asked = select(sql_rows.c.available).where(sql_rows.c.sku == self._sku).order_by(sql_rows.c.row)
        return tuple(connection.execute(asked).scalars())


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

"""PostgreSQL: K rows, one row, or one row per unit, with the slow step in the row's transaction.

K rows with advisory locks: the lock of a row is taken before the row is touched, by `pg_try_advisory_xact_lock`, so a
buyer takes the first row that nobody works on, in a random order, and waits only if all are taken. It ends with the
transaction.

K rows: a random row first; if it is exhausted, the next one that is not. Units only decrease, and only committed
changes are visible, so a row read as exhausted stays so. Its fault: an order for several units is refused if no single
row has enough, although together they have.

One row: a conditional UPDATE locks it.

One row per unit: take the first unlocked rows with SKIP LOCKED, so that no buyer waits for a row. A buyer may find too
few rows because they are sold, or because others have locked them and may still roll back. So it releases its rows,
counts the units free by committed state, and retries as long as they would be enough.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from sqlalchemy import BigInteger, Column, Index, String, Table, bindparam, func, insert, select, text, update

from bench.strategies.base import WAIT_SECONDS, GaveUp
from bench.strategies.counted import split
from bench.strategies.sql_stock import SqlStrategy, metadata, sql_rows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from bench.strategies.base import Guarantees
    from segmented.models import Order

TAKE_FROM_ROW: Final = (
    update(sql_rows)
    .where(
        sql_rows.c.sku == bindparam("given_sku"),
        sql_rows.c.row == bindparam("given_row"),
        sql_rows.c.available >= bindparam("wanted"),
    )
    .values(available=sql_rows.c.available - bindparam("wanted"))
)
"""The statement waits for the row's lock and then checks again, so refusals are exact."""
TRY_ROWS: Final = text(
    "SELECT row FROM unnest(CAST(:given_rows AS integer[])) AS row"
    " WHERE pg_try_advisory_xact_lock(hashtext(:given_sku), row) LIMIT 1"
)
"""Tries row after row until one is free."""
WAIT_FOR_ROW: Final = text("SELECT pg_advisory_xact_lock(hashtext(:given_sku), :given_row)")
PAUSE: Final = 0.005
"""Maximum seconds before a retry for units that others have locked."""
CALIBRATED_WITH: Final = 60_000
"""Stock of a sale that ends by time: more than transactions could sell in it."""

units: Final = Table(
    "bench_sql_units",
    metadata,
    Column("sku", String(256), nullable=False),
    Column("unit", BigInteger, nullable=False),
    Column("order_id", String(256)),
    Index("bench_sql_units_free", "sku", "unit", unique=True, postgresql_where=text("order_id IS NULL")),
)
_IS_FREE: Final = (units.c.sku == bindparam("given_sku"), units.c.order_id.is_(None))
_FREE: Final = select(units.c.unit).where(*_IS_FREE).order_by(units.c.unit).limit(bindparam("wanted"))
TAKE_UNITS: Final = (
    update(units)
    # as an array, the selection runs once: as a set it might run again for each row, and lock more
    .where(*_IS_FREE, units.c.unit == func.any(func.array(_FREE.with_for_update(skip_locked=True).scalar_subquery())))
    .values(order_id=bindparam("given_order_id"))
)
LEFT: Final = select(func.count()).select_from(_FREE.subquery())


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
        return connection.execute(TAKE_FROM_ROW, values).rowcount == 1

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

    def _take(self, connection: Connection, order: Order) -> int | None:
        row = random.randrange(self.segments)  # not a secret; the run's seed repeats it
        while not self._take_from(connection, row, order):
            left = self._left(connection)
            following = [(row + step) % self.segments for step in range(1, self.segments + 1)]
            row = next((other for other in following if left[other] >= order.quantity), -1)
            if row < 0:
                return None
        return row


class PgAdvisory(PgHotRow):
    """As many rows as configured, each with an advisory lock."""

    name: ClassVar[str] = "pg-advisory"
    summary: ClassVar[str] = (
        "PostgreSQL: K rows under advisory locks, the first free one, the slow step in its transaction"
    )
    has_segments: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = PgRows.guarantees

    def _take(self, connection: Connection, order: Order) -> int | None:
        rows = list(range(self.segments))
        while rows:
            random.shuffle(rows)  # not a secret; the run's seed repeats it
            row = connection.execute(TRY_ROWS, {"given_sku": self._sku, "given_rows": rows}).scalar()
            if row is None:  # all are taken: wait for one
                row = rows[0]
                connection.execute(WAIT_FOR_ROW, {"given_sku": self._sku, "given_row": row})
            if self._take_from(connection, row, order):
                return int(row)
            connection.rollback()  # the row is exhausted; its lock ends
            connection.exec_driver_sql("BEGIN")
            rows = [row for row, units in enumerate(self._left(connection)) if units >= order.quantity]
        return None


class PgSkipLocked(SqlStrategy):
    """One row per unit."""

    name: ClassVar[str] = "pg-skip-locked"
    summary: ClassVar[str] = "PostgreSQL: a row a unit, SKIP LOCKED, the slow step in its transaction"
    is_parallel: ClassVar[bool] = True  # they lock different units
    calibration_stock: ClassVar[int] = CALIBRATED_WITH
    guarantees: ClassVar[Guarantees] = replace(SqlStrategy.guarantees, section="unlimited")

    def _put(self, connection: Connection) -> None:
        connection.execute(
            text("INSERT INTO bench_sql_units (sku, unit) SELECT :sku, unit FROM generate_series(1, :stock) AS unit"),
            {"sku": self._sku, "stock": self._stock},
        )
        connection.exec_driver_sql("ANALYZE bench_sql_units")

    def _take(self, connection: Connection, order: Order) -> int | GaveUp | None:
        wanted = {"given_sku": self._sku, "wanted": order.quantity}
        until = time.monotonic() + WAIT_SECONDS
        while connection.execute(TAKE_UNITS, {**wanted, "given_order_id": order.order_id}).rowcount < order.quantity:
            connection.rollback()
            if connection.execute(LEFT, wanted).scalar_one() < order.quantity:
                return None
            if time.monotonic() >= until:
                return GaveUp(f"others had the last units locked for {WAIT_SECONDS:g} s")
            time.sleep(random.uniform(0, PAUSE))  # not a secret; only to spread the retries
            connection.exec_driver_sql("BEGIN")
        return 0

    def _left(self, connection: Connection) -> tuple[int, ...]:
        free = select(func.count()).where(units.c.sku == self._sku, units.c.order_id.is_(None))
        return (int(connection.execute(free).scalar_one()),)

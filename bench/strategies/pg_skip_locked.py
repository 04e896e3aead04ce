"""PostgreSQL, one row per unit: take the first unlocked rows with SKIP LOCKED, so that no buyer waits for a row.

A buyer may find too few rows because they are sold, or because others have locked them and may still roll back. So it
releases its rows, counts the units free by committed state, and retries as long as they would be enough.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from sqlalchemy import BigInteger, Column, Index, String, Table, bindparam, func, select, text, update

from bench.strategies.base import GaveUp
from bench.strategies.clients import WAIT_SECONDS
from bench.strategies.sql_stock import SqlStrategy, metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from bench.strategies.base import Guarantees
    from segmented.models import Order

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
TAKE: Final = (
    update(units)
    # as an array, the selection runs once: as a set it might run again for each row, and lock more
    .where(*_IS_FREE, units.c.unit == func.any(func.array(_FREE.with_for_update(skip_locked=True).scalar_subquery())))
    .values(order_id=bindparam("given_order_id"))
)
LEFT: Final = select(func.count()).select_from(_FREE.subquery())


class PgSkipLocked(SqlStrategy):
    """One row per unit."""

    name: ClassVar[str] = "pg-skip-locked"
    summary: ClassVar[str] = "PostgreSQL: a row a unit, SKIP LOCKED, the slow step in its transaction"
    calibration_stock: ClassVar[int] = CALIBRATED_WITH
    guarantees: ClassVar[Guarantees] = replace(SqlStrategy.guarantees, section="unlimited")

    @property
    def lanes(self) -> int:
        """Every buyer can lock different units."""
        return self.context.buyers

    def _put(self, connection: Connection) -> None:
        connection.execute(
            text("INSERT INTO bench_sql_units (sku, unit) SELECT :sku, unit FROM generate_series(1, :stock) AS unit"),
            {"sku": self._sku, "stock": self._stock},
        )
        connection.exec_driver_sql("ANALYZE bench_sql_units")

    def _take(self, connection: Connection, order: Order) -> int | GaveUp | None:
        wanted = {"given_sku": self._sku, "wanted": order.quantity}
        until = time.monotonic() + WAIT_SECONDS
        while connection.execute(TAKE, {**wanted, "given_order_id": order.order_id}).rowcount < order.quantity:
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

"""PostgreSQL, a row a unit: take the first that nobody has locked, with SKIP LOCKED, so that nobody waits for a row.

Too few are found either because they are sold, or because others have them locked and may yet roll back. So a buyer
that found too few lets go, counts what is committed as free, and tries again for as long as that would be enough.
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
"""Seconds at most until units that others have locked are looked for again."""
CALIBRATED_WITH: Final = 60_000
"""Units of a sale that is to end for time: more than any transactions could sell in seconds."""

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
    # as an array, the selection is made once: as a set it might be made again for each row, and lock more
    .where(*_IS_FREE, units.c.unit == func.any(func.array(_FREE.with_for_update(skip_locked=True).scalar_subquery())))
    .values(order_id=bindparam("given_order_id"))
)
LEFT: Final = select(func.count()).select_from(_FREE.subquery())


class PgSkipLocked(SqlStrategy):
    """A row a unit."""

    name: ClassVar[str] = "pg-skip-locked"
    summary: ClassVar[str] = "PostgreSQL: a row a unit, SKIP LOCKED, the slow step in its transaction"
    calibration_stock: ClassVar[int] = CALIBRATED_WITH
    guarantees: ClassVar[Guarantees] = replace(SqlStrategy.guarantees, section="unlimited")

    @property
    def lanes(self) -> int:
        """Every buyer can have units of its own locked."""
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
            time.sleep(random.uniform(0, PAUSE))  # no secret, only out of step with the others
            connection.exec_driver_sql("BEGIN")
        return 0

    def _left(self, connection: Connection) -> tuple[int, ...]:
        free = select(func.count()).where(units.c.sku == self._sku, units.c.order_id.is_(None))
        return (int(connection.execute(free).scalar_one()),)

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
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as insert_or_not
from sqlalchemy.exc import DBAPIError

from bench.sizing import oversold
from bench.strategies.base import WAIT_SECONDS, GaveUp, Guarantees, Refused, Sold, Strategy, Verdict
from bench.strategies.counted import split
from segmented.errors import InvalidInput
from segmented.orders import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from bench.strategies.base import Answer, StrategyContext
    from segmented.models import Order

SPARE_CONNECTIONS: Final = 2
STATEMENT_SECONDS: Final = 2 * WAIT_SECONDS
"""Statement timeout; the lock timeout of a row is half of it."""
CONFLICTS: Final = {"55P03", "57014", "40P01"}
"""SQLSTATEs of a lock timeout, a statement timeout and a deadlock."""

metadata: Final = sa.MetaData()
sql_orders: Final = sa.Table(
    "bench_sql_orders",
    metadata,
    sa.Column("sku", sa.String(256), primary_key=True),
    sa.Column("order_id", sa.String(256), primary_key=True),
    sa.Column("quantity", sa.BigInteger, nullable=False),
)
sql_rows: Final = sa.Table(
    "bench_sql_rows",
    metadata,
    sa.Column("sku", sa.String(256), primary_key=True),
    sa.Column("row", sa.Integer, primary_key=True),
    sa.Column("available", sa.BigInteger, sa.CheckConstraint("available >= 0"), nullable=False),
)


class SqlStrategy(Strategy):
    """Sells from rows of a table."""

    needs_database: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = Guarantees(
        one_effect_per_order=True,
        section="one at a time",
        fencing=False,
        after_a_crash="the transaction is rolled back: units and row are free at once",
        durable="commit",
    )

    def __init__(self, context: StrategyContext) -> None:
        """Connect with one connection per buyer and the timeout of locks. Raises InvalidInput."""
        super().__init__(context)
        if context.engine is None or context.engine.dialect.name != "postgresql":
            raise InvalidInput(f"{self.name} needs an order database at postgresql://")
        url = context.engine.url.render_as_string(hide_password=False)
        self.engine = connect(url, pool_size=context.buyers + SPARE_CONNECTIONS, timeout=STATEMENT_SECONDS)
        self._sku = ""
        self._stock = 0
        self._taken = 0
        """Units sold, or of orders that may still get them: the "sequence" of a refusal."""

    def open(self, sku: str, stock: int) -> None:
        """Create the tables, and insert the units."""
        metadata.create_all(self.engine)
        self._sku, self._stock, self._taken = sku, stock, 0
        with self.engine.connect() as connection:
            self._put(connection)

    @abstractmethod
    def _put(self, connection: Connection) -> None:
        """Insert rows with all units."""

    @abstractmethod
    def _take(self, connection: Connection, order: Order) -> int | GaveUp | None:
        """Take units in the open transaction; return the row's number, or None if sold out."""

    @abstractmethod
    def _left(self, connection: Connection) -> tuple[int, ...]:
        """Read free units by row."""

    def buy(self, order: Order) -> Answer:
        """Take units, run the slow step, store the order, commit."""
        self._taken += order.quantity
        try:
            with self.engine.connect() as connection:  # rolls back without a commit
                answer = self._bought(connection, order)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in CONFLICTS:
                raise
            answer = GaveUp(f"{type(error.orig).__name__} after {WAIT_SECONDS:g} s or a deadlock")
        if isinstance(answer, Refused | GaveUp):
            self._taken -= order.quantity
        if isinstance(answer, Refused):
            return Refused(self._taken, order.quantity)
        return answer

    def _bought(self, connection: Connection, order: Order) -> Answer:
        connection.exec_driver_sql("BEGIN")
        taken = self._take(connection, order)
        if isinstance(taken, GaveUp):
            return taken
        if taken is None:
            connection.rollback()
            if connection.execute(_FIND, {"given_sku": self._sku, "given_order_id": order.order_id}).first() is None:
                return Refused(0, order.quantity)
            self._taken -= order.quantity  # it was sold before, maybe as the last one
            return Sold(time.monotonic())
        granted_at = time.monotonic()
        self.context.section.run()
        values = {"sku": self._sku, "order_id": order.order_id, "quantity": order.quantity}
        is_new = connection.execute(_STORE, values).first() is not None
        if is_new:
            connection.commit()
        else:  # it was sold before
            connection.rollback()
            self._taken -= order.quantity
        return Sold(granted_at, time.monotonic(), taken if self.segments > 1 else None)

    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Count the stored orders, and the free units."""
        with self.engine.connect() as connection:
            found = connection.execute(
                sa.select(sql_orders.c.order_id, sql_orders.c.quantity).where(sql_orders.c.sku == self._sku)
            ).all()
            left = self._left(connection)
        sold, available = sum(row.quantity for row in found), sum(left)
        drift = self._stock - sold - available
        return Verdict(
            sold=sold,
            available=available,
            sold_in_sql=sold,
            oversold_in_redis=0,
            oversold_in_sql=oversold(sold, self._stock),
            refused_wrongly=sum(self._stock - refusal.sequence >= refusal.quantity for refusal in refusals),
            audit="clean" if not drift else f"units neither free nor sold: {drift}",
            sold_ids=frozenset(row.order_id for row in found),
            left=left if self.segments > 1 else (),
        )

    def free_by_segment(self) -> tuple[int, ...]:
        """Read all rows."""
        if self.segments == 1:
            return ()
        with self.engine.connect() as connection:
            return self._left(connection)

    def clear(self) -> None:
        """Remove the tables."""
        metadata.drop_all(self.engine)

    def close(self) -> None:
        """Disconnect."""
        self.engine.dispose()


_FIND: Final = sa.select(sql_orders.c.order_id).where(
    sql_orders.c.sku == sa.bindparam("given_sku"), sql_orders.c.order_id == sa.bindparam("given_order_id")
)
_STORE: Final = insert_or_not(sql_orders).on_conflict_do_nothing().returning(sql_orders.c.order_id)

TAKE_FROM_ROW: Final = (
    sa.update(sql_rows)
    .where(
        sql_rows.c.sku == sa.bindparam("given_sku"),
        sql_rows.c.row == sa.bindparam("given_row"),
        sql_rows.c.available >= sa.bindparam("wanted"),
    )
    .values(available=sql_rows.c.available - sa.bindparam("wanted"))
)
"""The statement waits for the row's lock and then checks again, so refusals are exact."""
TRY_ROWS: Final = sa.text(
    "SELECT row FROM unnest(CAST(:given_rows AS integer[])) AS row"
    " WHERE pg_try_advisory_xact_lock(hashtext(:given_sku), row) LIMIT 1"
)
"""Tries row after row until one is free."""
WAIT_FOR_ROW: Final = sa.text("SELECT pg_advisory_xact_lock(hashtext(:given_sku), :given_row)")
PAUSE: Final = 0.005
"""Maximum seconds before a retry for units that others have locked."""
CALIBRATED_WITH: Final = 60_000
"""Stock of a sale that ends by time: more than transactions could sell in it."""

units: Final = sa.Table(
    "bench_sql_units",
    metadata,
    sa.Column("sku", sa.String(256), nullable=False),
    sa.Column("unit", sa.BigInteger, nullable=False),
    sa.Column("order_id", sa.String(256)),
    sa.Index("bench_sql_units_free", "sku", "unit", unique=True, postgresql_where=sa.text("order_id IS NULL")),
)
_IS_FREE: Final = (units.c.sku == sa.bindparam("given_sku"), units.c.order_id.is_(None))
_FREE: Final = sa.select(units.c.unit).where(*_IS_FREE).order_by(units.c.unit).limit(sa.bindparam("wanted"))
_UNLOCKED: Final = _FREE.with_for_update(skip_locked=True).scalar_subquery()
TAKE_UNITS: Final = (
    sa.update(units)
    # as an array, the selection runs once: as a set it might run again for each row, and lock more
    .where(*_IS_FREE, units.c.unit == sa.func.any(sa.func.array(_UNLOCKED)))
    .values(order_id=sa.bindparam("given_order_id"))
)
LEFT: Final = sa.select(sa.func.count()).select_from(_FREE.subquery())


class PgHotRow(SqlStrategy):
    """One row for the whole stock."""

    name: ClassVar[str] = "pg-hot-row"
    summary: ClassVar[str] = "PostgreSQL: one row with a conditional UPDATE, the slow step in its transaction"

    def _put(self, connection: Connection) -> None:
        shares = enumerate(split(self._stock, self.segments))
        rows = [{"sku": self._sku, "row": row, "available": units} for row, units in shares]
        connection.execute(sa.insert(sql_rows), rows)

    def _take_from(self, connection: Connection, row: int, order: Order) -> bool:
        values = {"given_sku": self._sku, "given_row": row, "wanted": order.quantity}
        return connection.execute(TAKE_FROM_ROW, values).rowcount == 1

    def _take(self, connection: Connection, order: Order) -> int | None:
        return 0 if self._take_from(connection, 0, order) else None

    def _left(self, connection: Connection) -> tuple[int, ...]:
        asked = sa.select(sql_rows.c.available).where(sql_rows.c.sku == self._sku).order_by(sql_rows.c.row)
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
        rows = "SELECT :sku, unit FROM generate_series(1, :stock) AS unit"
        filled = sa.text(f"INSERT INTO bench_sql_units (sku, unit) {rows}")
        connection.execute(filled, {"sku": self._sku, "stock": self._stock})
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
        free = sa.select(sa.func.count()).where(units.c.sku == self._sku, units.c.order_id.is_(None))
        return (int(connection.execute(free).scalar_one()),)

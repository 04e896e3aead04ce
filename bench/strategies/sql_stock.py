"""The base of strategies in PostgreSQL: one transaction per order, including the slow step, and one row per order.

The database decides everything; Redis is not used. A transaction takes units, runs the slow step, stores the order and
commits durably; until then its rows are locked. A repeated order takes nothing and gets the same answer.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from sqlalchemy import BigInteger, CheckConstraint, Column, Integer, MetaData, String, Table, bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError

from bench.sizing import oversold
from bench.strategies.base import WAIT_SECONDS, GaveUp, Guarantees, Refused, Sold, Strategy, Verdict
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

metadata: Final = MetaData()
sql_orders: Final = Table(
    "bench_sql_orders",
    metadata,
    Column("sku", String(256), primary_key=True),
    Column("order_id", String(256), primary_key=True),
    Column("quantity", BigInteger, nullable=False),
)
sql_rows: Final = Table(
    "bench_sql_rows",
    metadata,
    Column("sku", String(256), primary_key=True),
    Column("row", Integer, primary_key=True),
    Column("available", BigInteger, CheckConstraint("available >= 0"), nullable=False),
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
            message = f"{self.name} needs an order database at postgresql://"
            raise InvalidInput(message)
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
                select(sql_orders.c.order_id, sql_orders.c.quantity).where(sql_orders.c.sku == self._sku)
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


_FIND: Final = select(sql_orders.c.order_id).where(
    sql_orders.c.sku == bindparam("given_sku"), sql_orders.c.order_id == bindparam("given_order_id")
)
_STORE: Final = insert(sql_orders).on_conflict_do_nothing().returning(sql_orders.c.order_id)

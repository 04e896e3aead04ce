"""The control: read the counter, do the slow step, write the counter back. In between, everybody sells the same unit.

It bypasses the gate and inserts into a table of its own, because the gate would refuse what this oversells.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Final

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, delete, func, insert, select

from bench.sizing import oversold
from bench.strategies.base import Refused, Sold, Strategy, Verdict, mean_of
from segmented.stores.redis.wire import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from bench.assignment import Assignment
    from bench.strategies.base import Answer
    from segmented.models import Order
    from segmented.stores.redis import RedisStore

metadata: Final = MetaData()
unguarded_orders: Final = Table(
    "bench_unguarded_orders",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("sku", String(256), nullable=False),
    Column("order_id", String(256), nullable=False),
    Column("quantity", BigInteger, nullable=False),
)


class NoLock(Strategy):
    """Read, think, write."""

    name: ClassVar[str] = "no-lock"
    is_control: ClassVar[bool] = True

    def __init__(self, assignment: Assignment, store: RedisStore, engine: Engine) -> None:
        """Make the table."""
        super().__init__(assignment, store, engine)
        metadata.create_all(engine)
        self._sku = ""
        self._stock = 0
        self._granted = 0
        self._holds: list[tuple[float, float]] = []

    @property
    def segments(self) -> int:
        """One counter."""
        return 1

    @property
    def lanes(self) -> int:
        """One: a correct read-modify-write would let one order through at a time."""
        return 1

    @property
    def _counter(self) -> str:
        return f"bench:{self._sku}:available"

    def open(self, sku: str, stock: int) -> None:
        """Set the counter."""
        self._sku, self._stock = sku, stock
        self._granted = 0
        self._holds = []
        self.store.client.set(self._counter, stock)

    def buy(self, order: Order) -> Answer:
        """Read, spend the extra hold, store the order and commit, write."""
        available = int(text(self.store.client.get(self._counter)))
        if available < order.quantity:
            return Refused(self._granted, order.quantity)
        self._granted += order.quantity
        granted_at = time.monotonic()
        self.linger()
        values = {"sku": self._sku, "order_id": order.order_id, "quantity": order.quantity}
        with self.engine.connect() as connection:
            connection.execute(insert(unguarded_orders), values)
        self.store.client.set(self._counter, available - order.quantity)
        self._holds.append((granted_at, time.monotonic() - granted_at))
        return Sold(granted_at)

    def mean_hold(self, warm_up: float) -> float:
        """Measure from read to write, by the local clock."""
        first = min(granted_at for granted_at, _ in self._holds)
        return mean_of(hold for granted_at, hold in self._holds if granted_at >= first + warm_up)

    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Count rows. The counter itself saw nothing unusual."""
        total = select(func.coalesce(func.sum(unguarded_orders.c.quantity), 0))
        with self.engine.connect() as connection:
            in_sql = int(connection.execute(total.where(unguarded_orders.c.sku == self._sku)).scalar_one())
        available = int(text(self.store.client.get(self._counter)))
        return Verdict(
            sold=in_sql,
            sold_in_sql=in_sql,
            oversold_in_redis=max(0, -available),
            oversold_in_sql=oversold(in_sql, self._stock),
            # no ledger here: the "sequence" of its refusals is the number of units granted by then
            refused_wrongly=sum(self._stock - refusal.sequence >= refusal.quantity for refusal in refusals),
            audit="none",
        )

    def clear(self) -> None:
        """Remove the counter and the rows; the empty table stays."""
        self.store.client.unlink(self._counter)
        with self.engine.begin() as connection:
            connection.execute(delete(unguarded_orders).where(unguarded_orders.c.sku == self._sku))

"""The control: read the counter, do the slow step, write the counter back. In between, everybody sells the same unit.

It bypasses the gate and notes its orders in a list or table of its own, because the gate would refuse what this
oversells.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Final

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, delete, insert, select

from bench.sizing import oversold
from bench.strategies.base import Guarantees, Refused, Sold, Strategy, Verdict, mean_of
from segmented.stores.redis.wire import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.strategies.base import Answer, Stage
    from segmented.models import Order

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
    summary: ClassVar[str] = "read, think, write: the control, which must oversell"
    is_control: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = Guarantees(
        never_oversells=False,
        one_effect_per_order=False,
        section="unlimited",
        fencing=False,
        after_a_crash="what was read and not written is lost",
    )

    def __init__(self, stage: Stage) -> None:
        """Make the table, where orders are stored in one."""
        super().__init__(stage)
        if stage.engine is not None:
            metadata.create_all(stage.engine)
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

    @property
    def _sold(self) -> str:
        return f"bench:{self._sku}:sold"

    def open(self, sku: str, stock: int) -> None:
        """Set the counter."""
        self._sku, self._stock = sku, stock
        self._granted = 0
        self._holds = []
        self.stage.store.client.set(self._counter, stock)

    def buy(self, order: Order) -> Answer:
        """Read, spend the extra hold, store the order and commit, write."""
        client = self.stage.store.client
        available = int(text(client.get(self._counter)))
        if available < order.quantity:
            return Refused(self._granted, order.quantity)
        self._granted += order.quantity
        granted_at = time.monotonic()
        self.stage.section.run()
        self._store(order)
        client.set(self._counter, available - order.quantity)
        freed_at = time.monotonic()
        self._holds.append((granted_at, freed_at - granted_at))
        return Sold(granted_at, freed_at)

    def _store(self, order: Order) -> None:
        """Note what was sold, where nothing refuses it."""
        if self.stage.section.commits and self.stage.engine is not None:
            values = {"sku": self._sku, "order_id": order.order_id, "quantity": order.quantity}
            with self.stage.engine.connect() as connection:
                connection.execute(insert(unguarded_orders), values)
        else:
            self.stage.store.client.rpush(self._sold, f"{order.order_id} {order.quantity}")

    def mean_hold(self, warm_up: float) -> float:
        """Measure from read to write, by the local clock."""
        first = min(granted_at for granted_at, _ in self._holds)
        return mean_of(hold for granted_at, hold in self._holds if granted_at >= first + warm_up)

    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Count what was noted as sold. The counter itself saw nothing unusual."""
        sold = self._noted()
        units = sum(quantity for _, quantity in sold)
        available = int(text(self.stage.store.client.get(self._counter)))
        commits = self.stage.section.commits
        return Verdict(
            sold=units,
            available=max(0, available),
            sold_in_sql=units if commits else None,
            oversold_in_redis=max(0, -available) if commits else oversold(units, self._stock),
            oversold_in_sql=oversold(units, self._stock) if commits else 0,
            # no ledger here: the "sequence" of its refusals is the number of units granted by then
            refused_wrongly=sum(self._stock - refusal.sequence >= refusal.quantity for refusal in refusals),
            audit="none",
            duplicates=len(sold) - len({order_id for order_id, _ in sold}),
            sold_ids=frozenset(order_id for order_id, _ in sold),
        )

    def _noted(self) -> list[tuple[str, int]]:
        if self.stage.section.commits and self.stage.engine is not None:
            asked = select(unguarded_orders.c.order_id, unguarded_orders.c.quantity)
            with self.stage.engine.connect() as connection:
                rows = connection.execute(asked.where(unguarded_orders.c.sku == self._sku))
                return [(row.order_id, row.quantity) for row in rows]
        noted = (text(line).rpartition(" ") for line in self.stage.store.client.lrange(self._sold, 0, -1))
        return [(order_id, int(quantity)) for order_id, _, quantity in noted]

    def clear(self) -> None:
        """Remove the counter and the rows; the empty table stays."""
        self.stage.store.client.unlink(self._counter, self._sold)
        if self.stage.engine is not None:
            with self.stage.engine.begin() as connection:
                connection.execute(delete(unguarded_orders).where(unguarded_orders.c.sku == self._sku))

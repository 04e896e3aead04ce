"""What the strategies over a pool share: opening it with its gate, and reading the verdict from ledger and database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import delete

from bench.refusals import count_wrong
from bench.sizing import oversold
from bench.strategies.base import Strategy, Verdict, mean_of
from segmented import operations as op
from segmented.errors import InvalidInput
from segmented.keys import shard_keys
from segmented.models import AlreadyOpen
from segmented.orders import Gate
from segmented.orders.tables import orders, segments
from segmented.stock import LedgerFold, Pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Engine

    from bench.assignment import Assignment
    from bench.strategies.base import Refused
    from segmented.models import LedgerEntry
    from segmented.stores.redis import RedisStore

PAGE: Final = 1_000
MICROSECONDS: Final = 1_000_000


class PooledStrategy(Strategy):
    """Sells from a gated pool."""

    pool: Pool

    def __init__(self, assignment: Assignment, store: RedisStore, engine: Engine) -> None:
        """Sell nothing yet."""
        super().__init__(assignment, store, engine)
        self.gate = Gate(engine)
        self._stock = 0

    def open(self, sku: str, stock: int) -> None:
        """Open pool and gate with the same units a segment."""
        self.pool = Pool(self.store, sku)
        self._stock = stock
        opened = self.pool.open(stock=stock, segments=self.segments, gated=True)
        if isinstance(opened, AlreadyOpen):
            message = f"pool {sku!r} is there already"
            raise InvalidInput(message)
        self.gate.open(sku, opened.state.stock, epoch=opened.state.epoch)

    def mean_hold(self, warm_up: float) -> float:
        """Measure from `reserved` to `confirmed` in the ledger: the time a segment is taken, by the server's clock."""
        return mean_of(holds(self._ledger(), warm_up)) / MICROSECONDS

    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Fold the ledger, ask the database, and audit."""
        fold = LedgerFold()
        fold.apply(self._ledger())
        report = self.pool.audit()
        in_sql = self.gate.confirmed_units(self.pool.sku)
        return Verdict(
            sold=report.state.confirmed,
            sold_in_sql=in_sql,
            oversold_in_redis=report.oversold,
            oversold_in_sql=oversold(in_sql, self._stock),
            refused_wrongly=report.refused_wrongly + count_wrong(refusals, fold),
            audit="clean" if report.is_clean else "; ".join(str(drift) for drift in report.drift),
        )

    def clear(self) -> None:
        """Remove the pool's keys and the gate's rows."""
        self.store.client.unlink(*shard_keys(self.pool.sku).listed())
        with self.engine.begin() as connection:
            for table in (orders, segments):
                connection.execute(delete(table).where(table.c.sku == self.pool.sku))

    def _ledger(self) -> Iterator[LedgerEntry]:
        after = 0
        while page := self.store.execute(op.ReadLedger(self.pool.sku, after, PAGE)):
            yield from page
            after = page[-1].sequence


def holds(entries: Iterator[LedgerEntry], warm_up: float) -> Iterator[int]:
    """Yield microseconds from `reserved` to `confirmed`; not for orders of the first `warm_up` seconds."""
    reserved_at: dict[str, int] = {}
    first: int | None = None
    for entry in entries:
        if entry.order_id is None or entry.kind in {"restocked", "withdrawn"}:
            continue
        if entry.kind == "reserved":
            first = entry.at_us if first is None else first
            if entry.at_us >= first + warm_up * MICROSECONDS:
                reserved_at[entry.order_id] = entry.at_us
        elif entry.kind == "confirmed" and entry.order_id in reserved_at:
            yield entry.at_us - reserved_at[entry.order_id]

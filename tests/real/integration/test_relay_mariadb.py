"""The rows of a relayed ledger on MariaDB, which the gate does not use yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from sqlalchemy import create_engine, func, inspect, select

from segmented import Order, Pool, RedisStore, protocol as op
from segmented.orders import migrate
from segmented.orders.ledger import LedgerRows
from segmented.orders.ledger_table import ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection


SKU: Final = "mug"
AnswerT = TypeVar("AnswerT")


def test_mariadb_has_each_change_once_as_well(store: RedisStore, mariadb_url: str) -> None:
    pool = Pool(store, SKU)
    pool.open(stock=100, segments=4)
    engine = create_engine(mariadb_url)
    with engine.begin() as connection:
        for name in inspect(connection).get_table_names():  # of other tests
            if name.startswith("segmented_"):
                connection.exec_driver_sql(f"DROP TABLE {name}")
    migrate(engine)

    def run(work: Callable[[Connection], AnswerT]) -> AnswerT:
        with engine.connect() as connection:
            return work(connection)

    ledger_rows = LedgerRows("mysql", "START TRANSACTION", run)
    for order_id in ("first", "Second", "SECOND"):
        pool.reserve(order_id)
        pool.confirm(order_id)
    pool.reserve_many([Order("a"), Order("b")])
    steps = pool.store.execute(op.ReadSteps(SKU, 0, 1_000))
    for _ in range(2):
        ledger_rows.add(SKU, 0, steps)
    last = ledger_rows.last(SKU, 0)
    assert last is not None
    assert (last.change, last.chain) == ((1, 8), steps[-1].chain)
    assert ledger_rows.last("MUG", 0) is None
    assert ledger_rows.mark_lost(SKU, 0, 1) == 0
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(ledger)) == 9
        kept = list(pool.read_ledger())
        found = connection.execute(
            select(ledger.c.order_id, ledger.c.changed_at).order_by(ledger.c.sequence, ledger.c.line)
        )
        assert [(order, at.replace(tzinfo=UTC)) for order, at in found] == [
            (one.order_id, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=one.at_us)) for one in kept
        ]
    engine.dispose()

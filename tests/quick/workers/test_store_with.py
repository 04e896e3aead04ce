"""The shop's own rows and the orders of a message are one transaction: both are stored, or neither."""

from collections.abc import Iterator
from typing import Final

import pytest
from sqlalchemy import Connection, text

from segmented import Order, Outbox, Pool, RedisStore
from segmented.errors import InvalidInput
from segmented.orders import Gate, WorkTerms, connect
from segmented.orders.envelopes import take_envelope
from segmented.servers import ValkeyServer
from tests.quick.orders.conftest import every_database, store
from tests.support.pools.both_sides import judged, sql_rows

__all__ = ["every_database", "store"]
INVOICE: Final = text("INSERT INTO invoices (order_id, units) VALUES (:order_id, :units)")
TABLE: Final = "CREATE TABLE invoices (order_id VARCHAR(64) PRIMARY KEY, units INTEGER)"
IDS: Final = [f"o{number}" for number in range(5)]


def invoice(connection: Connection, orders: list[Order]) -> None:
    connection.execute(INVOICE, [{"order_id": one.order_id, "units": one.quantity} for one in orders])


@pytest.fixture
def gate(every_database: str) -> Iterator[Gate]:
    engine = connect(every_database)
    with Gate(engine) as made:
        made.create()
        with engine.connect() as connection:
            connection.exec_driver_sql(TABLE)
        yield made


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Ten units in two segments, all of which five orders have that wait for a worker."""
    made = Pool(store, "mug", gate=gate, outbox=Outbox())
    made.open(stock=10, segments=2)
    made.submit_many([Order(order_id, 2) for order_id in IDS])
    return made


def invoices(database: str) -> list[tuple[str, int]]:
    return sql_rows(database, "SELECT order_id, units FROM invoices ORDER BY order_id")


def test_the_rows_of_a_message_are_stored_with_its_orders_once(
    pool: Pool, gate: Gate, valkey: ValkeyServer, every_database: str
) -> None:
    for _ in range(2):
        report = take_envelope(pool.plain, IDS, gate=gate, store_with=invoice)
        assert {one.state for one in report.settled} == {"confirmed"}
    assert invoices(every_database) == [(order_id, 2) for order_id in IDS]
    assert judged(valkey.url, every_database) == (10, 10, 0)


def test_an_order_whose_row_cannot_be_stored_is_put_off_alone(
    pool: Pool, gate: Gate, valkey: ValkeyServer, every_database: str
) -> None:
    def fail_for_one(connection: Connection, orders: list[Order]) -> None:
        invoice(connection, orders)
        if "o3" in [one.order_id for one in orders]:
            invoice(connection, orders)

    report = take_envelope(pool.plain, IDS, gate=gate, store_with=fail_for_one, terms=WorkTerms(begun_max=1))
    assert list(report.put_off) == ["o3"]
    assert report.put_off["o3"].startswith("StoreRefused: what is stored with 1 order failed: IntegrityError")
    assert invoices(every_database) == [(order_id, 2) for order_id in IDS if order_id != "o3"]
    assert (pool.state().confirmed, pool.state().reserved, gate.totals("mug").sold) == (8, 2, 8)
    assert pool.confirm("o3").state == "confirmed"
    assert judged(valkey.url, every_database) == (10, 10, 0)


def test_a_function_that_ends_the_transaction_stores_no_order(pool: Pool, gate: Gate, every_database: str) -> None:
    def ends_it(connection: Connection, orders: list[Order]) -> None:
        connection.rollback()
        assert orders

    report = take_envelope(pool.plain, IDS, gate=gate, store_with=ends_it)
    assert sorted(report.put_off) == IDS
    assert (invoices(every_database), gate.totals("mug").sold) == ([], 0)


def test_rows_beside_orders_that_no_database_stores_are_refused(store: RedisStore) -> None:
    plain = Pool(store, "cup")
    plain.open(stock=1, segments=1)
    with pytest.raises(InvalidInput, match=r"^store_with needs the gate of pool 'cup': without one nothing is stored$"):
        take_envelope(plain, ["a"], store_with=invoice)

"""Workers that are killed store the shop's row with each order once, and report each outcome at least once."""

from functools import partial
from typing import Final

import pytest
import sqlalchemy
from sqlalchemy import create_engine

from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.pools.both_sides import sql_rows
from tests.support.workers.order_floor import GATED
from tests.support.workers.selling import until

pytestmark = pytest.mark.real

ROUNDS: Final = 4
A_ROUND: Final = 30
OWN: Final = {
    "SEGMENTED_ON_OUTCOME": "tests.support.workers.order_step:tell",
    "SEGMENTED_STORE_WITH": "tests.support.workers.order_step:invoice",
    "SEGMENTED_RELAY_EVERY": "0.2",
}


def test_killed_workers_store_each_row_once_and_report_each_outcome(open_system: OrderSystemFactory) -> None:
    def has_told(orders: int) -> bool:
        return len(system.runs("told-confirmed")) >= orders

    system = open_system(GATED, environment=OWN)
    database = system.environment["SEGMENTED_DATABASE"]
    url = sqlalchemy.make_url(database).set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE invoices (order_id VARCHAR(64) PRIMARY KEY)")
    engine.dispose()
    with system.beat():
        for number in range(ROUNDS):
            worker = system.worker()
            ids = [f"o{number}-{order}" for order in range(A_ROUND)]
            system.submit([(order_id, 1) for order_id in ids], envelopes_of=5)
            if number < ROUNDS - 1:
                until(partial(has_told, number * A_ROUND + 1))
                worker.kill()
        system.until_decided()
        until(partial(has_told, ROUNDS * A_ROUND))
    system.check()
    assert set(system.runs("told-confirmed")) == set(system.quantities)
    stored = [order_id for (order_id,) in sql_rows(database, "SELECT order_id FROM invoices")]
    assert sorted(stored) == sorted(system.quantities)

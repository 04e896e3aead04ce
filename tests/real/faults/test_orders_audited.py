"""The workers' audit asks the order database too, and ends however many orders there are."""

import sqlite3
from pathlib import Path

from segmented.models import Order
from segmented.orders.sale import take_order
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.workers.order_floor import GATED
from tests.support.workers.selling import until


def test_a_worker_reports_an_order_that_the_database_lost(open_system: OrderSystemFactory, tmp_path: Path) -> None:
    system = open_system(GATED, database="sqlite_url")
    assert system.gate is not None
    take_order(system.pool, system.gate, Order("bought", 1), timeout=60)
    with sqlite3.connect(tmp_path / "orders.sqlite") as database:
        database.execute("DELETE FROM segmented_orders WHERE order_id = 'bought'")
    worker = system.worker()
    system.app.send_task("segmented.audit", queue="segmented-chores")
    until(lambda: "pool only: order bought: the pool says confirmed with 1 unit, the order database" in worker.log())

"""A process that takes a payment is killed at each statement and commit: the shop's row and the gate's are one."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from sqlalchemy import create_engine, make_url, text

from segmented import Pool, RedisStore
from segmented.orders import Gate
from tests.support.pools.both_sides import judged, sql_rows

if TYPE_CHECKING:
    from pathlib import Path

    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.real

SKU: Final = "mug"
POINTS_MAX: Final = 40
SHOP: Final = """
import os, signal, sys
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.orm import Session
from segmented import Pool, RedisStore
from segmented.orders import Gate

server, database, order_id, last = *sys.argv[1:4], int(sys.argv[4])
engine = create_engine(database)
pool = Pool(RedisStore.from_url(server), "mug", gate=Gate(engine))
pool.reserve(order_id)
points = 0

def point(*_):
    global points
    points += 1
    if points == last:
        os.kill(os.getpid(), signal.SIGKILL)

for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
    event.listen(Engine, name, point)
with Session(engine) as session, session.begin():
    sold = pool.confirm(order_id, within=session)
    session.execute(text("INSERT INTO invoices (order_id) VALUES (:id)"), {"id": order_id})
point()
sold.tell()
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_kill_at_each_statement_leaves_both_rows_or_none(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, valkey: ValkeyServer
) -> None:
    database = f"sqlite:///{tmp_path / 'orders.sqlite'}"
    if kind == "postgresql":
        database = request.getfixturevalue("postgres_database")
    url = make_url(database)
    own = url.set(drivername="postgresql+psycopg") if kind == "postgresql" else url
    engine = create_engine(own)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE invoices (order_id VARCHAR(64) PRIMARY KEY)"))
    killed: dict[str, bool] = {}
    by_hand: list[str] = []
    with RedisStore.from_url(valkey.url) as store, Gate(engine) as gate:
        gate.create()
        pool = Pool(store, SKU, gate=gate)
        pool.open(stock=POINTS_MAX, segments=2)
        for point in range(1, POINTS_MAX):
            order_id = f"o-{point:02}"
            words = (valkey.url, own.render_as_string(hide_password=False), order_id, str(point))
            ended = subprocess.run((sys.executable, "-c", SHOP, *words), timeout=120, check=False)
            assert ended.returncode in {0, -signal.SIGKILL}
            stored = {one for (one,) in sql_rows(database, "SELECT order_id FROM invoices")}
            rows = {one for (one,) in sql_rows(database, "SELECT order_id FROM segmented_orders")}
            assert stored == rows - set(by_hand)
            if ended.returncode == 0:
                break
            killed[order_id] = order_id in rows
            assert pool.confirm(order_id).state == "confirmed"
            by_hand += [] if killed[order_id] else [order_id]
        else:
            pytest.fail("it never ended by itself")
        engine.dispose()
        assert set(killed.values()) == {False, True}
        assert len(killed) >= 8
        assert judged(valkey.url, database) == (POINTS_MAX, len(killed) + 1, POINTS_MAX - len(killed) - 1)
        assert pool.audit().is_clean

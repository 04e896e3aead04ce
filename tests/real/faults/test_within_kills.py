"""A process that takes a payment is killed at each statement and commit: the shop's row and the gate's are one."""

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import create_engine, make_url, text

from segmented import Pool, RedisStore
from segmented.orders import Gate
from segmented.servers import ValkeyServer
from tests.support.pools.both_sides import judged, sql_rows

pytestmark = pytest.mark.real

SKU: Final = "mug"
POINTS_MAX: Final = 40


@pytest.mark.parametrize(
    ("kind", "payment"),
    [
        *(("sqlite", "session"), ("postgresql", "session"), ("mariadb", "session")),
        *(("postgresql", "django"), ("postgresql", "psycopg"), ("sqlite", "envelope")),
    ],
)
def test_a_kill_at_each_statement_leaves_both_rows_or_none(
    kind: str, payment: str, request: pytest.FixtureRequest, tmp_path: Path, valkey: ValkeyServer
) -> None:
    database = f"sqlite:///{tmp_path / 'orders.sqlite'}"
    if kind != "sqlite":
        database = request.getfixturevalue("postgres_database" if kind == "postgresql" else "mariadb_database")
    url = make_url(database)
    own = url.set(drivername="postgresql+psycopg") if kind == "postgresql" else url
    engine = create_engine(own)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE invoices (order_id VARCHAR(64) PRIMARY KEY)"))
    killed: dict[str, bool] = {}
    by_hand: list[str] = []
    with RedisStore.from_url(valkey.url) as store, Gate(engine) as gate, ExitStack() as stack:
        gate.create()
        pool = Pool(store, SKU, gate=gate)
        pool.open(stock=POINTS_MAX, segments=2)
        where = (valkey.url, own.render_as_string(hide_password=False))
        words = (sys.executable, "-m", "tests.real.faults.within_shop", *where, payment)
        process = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for point in range(1, POINTS_MAX):
            order_id = f"o-{point:02}"
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{order_id} {point}\n")
            process.stdin.flush()
            ended = int(process.stdout.readline())
            assert ended in {0, -signal.SIGKILL}
            stored = {one for (one,) in sql_rows(database, "SELECT order_id FROM invoices")}
            rows = {one for (one,) in sql_rows(database, "SELECT order_id FROM segmented_orders")}
            assert stored == rows - set(by_hand)
            if ended == 0:
                break
            killed[order_id] = order_id in rows
            assert pool.confirm(order_id).state == "confirmed"
            by_hand += [] if killed[order_id] else [order_id]
        else:
            pytest.fail("it never ended by itself")
        engine.dispose()
        process.communicate(timeout=60)
        assert set(killed.values()) == {False, True}
        assert len(killed) >= 8
        assert judged(valkey.url, database) == (POINTS_MAX, len(killed) + 1, POINTS_MAX - len(killed) - 1)
        assert pool.audit().is_clean

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
SHOP: Final = """
import os, signal, sys
import django.db, psycopg
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.orm import Session
from segmented import Pool, RedisStore
from segmented.orders import Gate

server, database = sys.argv[1:]
INVOICE = "INSERT INTO invoices (order_id) VALUES (%s)"
points = 0

def point(*_):
    global points
    points += 1
    if points == last:
        os.kill(os.getpid(), signal.SIGKILL)

for line in sys.stdin:
    order_id, last = line.split()
    last = int(last)
    if os.fork() == 0:
        break
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
else:
    os._exit(0)

def ready():
    pool.reserve(order_id)
    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(Engine, name, point)

engine = create_engine(database)
pool = Pool(RedisStore.from_url(server), "mug", gate=Gate(engine))
"""
"""A process that takes each payment in a child of its own, and says how that ended."""
SESSION: Final = """
ready()
with Session(engine) as session, session.begin():
    sold = pool.confirm(order_id, within=session)
    session.execute(text("INSERT INTO invoices (order_id) VALUES (:id)"), {"id": order_id})
point()
sold.tell()
"""
DJANGO: Final = """
import django
from django.conf import settings
url = engine.url
named = {"NAME": url.database, "USER": url.username or "", "HOST": url.query.get("host", "")}
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends." + url.get_backend_name()} | named})
if url.get_backend_name() == "sqlite":
    settings.DATABASES["default"]["ENGINE"] += "3"
django.setup()
from django.db import connection, transaction
def each(execute, *words):
    point()
    try:
        return execute(*words)
    finally:
        point()
ready()
with connection.execute_wrapper(each), transaction.atomic():
    sold = pool.confirm(order_id, within=connection)
    with connection.cursor() as cursor:
        cursor.execute(INVOICE, [order_id])
    transaction.on_commit(point)
    transaction.on_commit(sold.tell)
"""
PSYCOPG: Final = """
import psycopg
ready()
with psycopg.connect(database.replace("+psycopg", "")) as connection:
    sold = pool.confirm(order_id, within=connection)
    point()
    connection.execute(INVOICE, [order_id])
    point()
    connection.commit()
    point()
    sold.tell()
"""


ENVELOPE: Final = """
from segmented import Outbox
from segmented.orders import take_envelope
pool = Pool(pool.store, "mug", gate=pool.gate, outbox=Outbox())
pool.reserve = pool.submit
def store_with(connection, orders):
    connection.execute(text("INSERT INTO invoices (order_id) VALUES (:id)"), [{"id": one.order_id} for one in orders])
confirm_many = pool.gate.confirm_many
def stored(*words, **named):
    answers = confirm_many(*words, **named)
    point()
    return answers
pool.gate.confirm_many = stored
ready()
take_envelope(pool.plain, [order_id], gate=pool.gate, store_with=store_with)
"""


@pytest.mark.parametrize(
    ("kind", "shop"),
    [
        ("sqlite", SESSION),
        ("postgresql", SESSION),
        ("mariadb", SESSION),
        ("sqlite", DJANGO),
        ("postgresql", DJANGO),
        ("postgresql", PSYCOPG),
        ("sqlite", ENVELOPE),
        ("postgresql", ENVELOPE),
    ],
    ids=[
        *("sqlite", "postgresql", "mariadb", "django-sqlite", "django-postgresql", "psycopg"),
        *("envelope-sqlite", "envelope-postgresql"),
    ],
)
def test_a_kill_at_each_statement_leaves_both_rows_or_none(
    kind: str, shop: str, request: pytest.FixtureRequest, tmp_path: Path, valkey: ValkeyServer
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
        words = (sys.executable, "-c", SHOP + shop, valkey.url, own.render_as_string(hide_password=False))
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

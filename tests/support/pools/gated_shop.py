"""Helpers for tests of a pool and its order database: a new process, and the check that both sides agree."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy
from sqlalchemy import create_engine, make_url
from sqlalchemy.pool import NullPool

from segmented import Pool, RedisStore
from segmented.orders import Gate, audit_both
from segmented.protocol.wire import text
from tests.support.pools.forgetting import SKU


@contextmanager
def process(url: str) -> Iterator[Pool]:
    """The pool of a process that has just been started."""
    with RedisStore.from_url(url) as store:
        yield Pool(store, SKU)


def check(pool: Pool, gate: Gate, *, confirmed: int, available: int, reserved: int = 0) -> None:
    """The pool agrees with its ledger and with the database."""
    state = pool.state()
    assert (state.confirmed, state.available, state.reserved) == (confirmed, available, reserved)
    report = pool.audit()
    assert report.is_clean, report.drift
    both = audit_both(pool.plain, gate)
    assert both.is_clean, both.differences
    assert gate.confirmed_units(pool.sku) == gate.totals(pool.sku).sold == confirmed


def everything(store: RedisStore, database: str) -> tuple[dict[str, object], dict[str, object]]:
    """Read every key and every row, of whatever table."""
    keys: dict[str, object] = {text(key): store.client.dump(key) for key in store.client.keys("*")}
    engine = create_engine(make_url(database).set(drivername=driver(database)), poolclass=NullPool)
    with engine.connect() as connection:
        tables = sqlalchemy.inspect(connection).get_table_names()
        rows = {name: [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {name}")] for name in tables}  # noqa: S608  # names of its own tables
    return keys, dict(rows)


def driver(database: str) -> str:
    drivers = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
    return drivers[make_url(database).get_backend_name()]

"""A confirm within a transaction of Django or psycopg: the shop's row and the gate's are stored together or not."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import django
import psycopg
import pymysql
import pytest
from django.conf import settings
from django.db import IntegrityError, connection, connections, transaction
from psycopg.rows import dict_row
from sqlalchemy import make_url

from segmented import AsyncPool, AsyncRedisStore, Pool, RedisStore
from segmented.errors import InvalidInput, StoreRefused
from segmented.orders import AsyncGate, Gate
from segmented.servers import ValkeyServer
from tests.support.pools.both_sides import judged, sql_rows
from tests.support.pools.gating import on_mariadb_too

SKU: Final = "mug"
INVOICE: Final = "INSERT INTO invoices (order_id) VALUES (%s)"
TABLE: Final = "CREATE TABLE invoices (order_id VARCHAR(64) PRIMARY KEY)"
SOLD: Final = "SELECT coalesce(sum(sold), 0) FROM segmented_segments"
VERSION: Final = "UPDATE segmented_alembic_version SET version_num = '0000'"

if not settings.configured:
    settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()


def of_django(database: str) -> dict[str, object]:
    """The settings of a shop's database."""
    url = make_url(database)
    if url.drivername == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.database}
    if url.get_backend_name() == "mysql":
        pymysql.install_as_MySQLdb()
        place = {"unix_socket": url.query["unix_socket"]}
        return {"ENGINE": "django.db.backends.mysql", "NAME": url.database, "USER": url.username, "OPTIONS": place}
    host = url.query.get("host", url.host)
    named = {"NAME": url.database, "USER": url.username, "HOST": host, "PORT": url.port, "PASSWORD": url.password}
    return {"ENGINE": "django.db.backends.postgresql"} | {name: value or "" for name, value in named.items()}


def conninfo(database: str) -> str:
    """The URL as psycopg takes it."""
    return database.replace("+psycopg", "")


def use(alias: str, database: dict[str, object]) -> None:
    connections.settings[alias] = database
    connections.configure_settings(connections.settings)
    connections[alias] = connections.create_connection(alias)  # pytest has looked at the one before


@pytest.fixture
def shop(every_database: str) -> Iterator[None]:
    """The default connection of Django's, on the order database."""
    use("default", of_django(every_database))
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
    yield
    for alias in connections.settings:
        connections[alias].close()


@pytest.fixture
def pool(store: RedisStore, every_database: str, shop: None) -> Iterator[Pool]:
    """Eight units in two segments."""
    del shop
    with Gate(every_database) as gate:
        gate.create()
        made = Pool(store, SKU, gate=gate)
        made.open(stock=8, segments=2)
        yield made


def webhook(pool: Pool, order_id: str) -> Any:  # noqa: ANN401  # a Sold
    """Take a payment in Django, as the page says."""
    with transaction.atomic():
        sold = pool.confirm(order_id, within=connection)
        if sold and not sold.replay:
            with connection.cursor() as cursor:
                cursor.execute(INVOICE, [order_id])
        transaction.on_commit(sold.tell)
    return sold


def invoices(database: str) -> list[str]:
    return sorted(order_id for (order_id,) in sql_rows(database, "SELECT order_id FROM invoices"))


@on_mariadb_too
def test_djangos_commit_stores_both_rows_and_tells_the_pool(
    pool: Pool, every_database: str, valkey: ValkeyServer
) -> None:
    pool.reserve("a", quantity=3)
    answers = [webhook(pool, "a") for _ in range(3)]
    assert [(bool(sold), sold.quantity, sold.replay) for sold in answers] == [
        (True, 3, False),
        (True, 3, True),
        (True, 3, True),
    ]
    assert judged(valkey.url, every_database) == (8, 3, 5)
    assert invoices(every_database) == ["a"]


def test_a_rollback_of_django_or_of_its_savepoint_stores_neither_row(
    pool: Pool, every_database: str, valkey: ValkeyServer
) -> None:
    pool.reserve("a", quantity=3)
    webhook(pool, "a")
    pool.reserve("b", quantity=2)
    with suppress(IntegrityError), transaction.atomic():
        assert pool.confirm("b", within=connections["default"])
        with connection.cursor() as cursor:
            cursor.execute(INVOICE, ["a"])
    with transaction.atomic():
        with suppress(ZeroDivisionError), transaction.atomic():
            assert pool.confirm("b", within=connection)
            raise ZeroDivisionError
        with connection.cursor() as cursor:
            cursor.execute(INVOICE, ["c"])
    assert (pool.state().reserved, sql_rows(every_database, SOLD)) == (2, [(3,)])
    webhook(pool, "b")
    assert judged(valkey.url, every_database) == (8, 5, 3)
    assert invoices(every_database) == ["a", "b", "c"]


@on_mariadb_too
@pytest.mark.parametrize("state", ["cancelled", "returned", "unknown"])
def test_a_late_webhook_of_django_gets_the_orders_state(
    pool: Pool, every_database: str, valkey: ValkeyServer, state: str
) -> None:
    if state != "unknown":
        pool.reserve("a", quantity=3)
    if state == "cancelled":
        pool.cancel("a")
    if state == "returned":
        webhook(pool, "a")
        pool.return_units("a", 3, return_id="rma-1")
    sold = webhook(pool, "a")
    assert (bool(sold), sold.state) == (False, state)
    assert judged(valkey.url, every_database) == (8, 0, 8)


def test_the_last_units_move_to_the_segment_that_needs_them_in_django(
    pool: Pool, every_database: str, valkey: ValkeyServer
) -> None:
    for order_id, quantity in (("a", 3), ("b", 3), ("c", 2)):
        pool.reserve(order_id, quantity=quantity)
    with transaction.atomic():
        found = [pool.confirm(order_id, within=connection) for order_id in ("a", "b", "c", "a")]
    assert [(bool(sold), sold.replay) for sold in found] == [(True, False), (True, False), (True, False), (True, True)]
    for sold in found:
        sold.tell()
    assert judged(valkey.url, every_database) == (8, 8, 0)


def test_what_is_no_django_transaction_of_the_gates_database_is_refused(
    pool: Pool, every_database: str, tmp_path: Path
) -> None:
    pool.reserve("a")
    use("other", of_django(f"sqlite:///{tmp_path / 'other.sqlite'}"))
    with pytest.raises(InvalidInput, match=r"has begun: call it inside `with transaction.atomic\(\)`$"):
        pool.confirm("a", within=connection)
    with transaction.atomic(using="other"), pytest.raises(InvalidInput, match=r"^within= is a transaction of another"):
        pool.confirm("a", within=connections["other"])
    with suppress(IntegrityError), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(INVOICE, ["a"])
            with suppress(IntegrityError), transaction.atomic(savepoint=False):
                cursor.execute(INVOICE, ["a"])
        with pytest.raises(StoreRefused, match=r"^within Django's transaction on 'default': nothing is stored: a fai"):
            pool.confirm("a", within=connection)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(VERSION)
        with pytest.raises(InvalidInput, match=r"has tables of revision 0000, and this release of segmented knows"):
            pool.confirm("a", within=connection)
    assert invoices(every_database) == []
    assert (pool.state().reserved, sql_rows(every_database, SOLD)) == (1, [(0,)])


@on_mariadb_too
def test_an_order_that_fails_in_django_spoils_the_transaction(
    pool: Pool, every_database: str, valkey: ValkeyServer
) -> None:
    pool.reserve("a")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE segmented_segments RENAME TO segmented_gone")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(INVOICE, ["a"])
        with pytest.raises(StoreRefused, match=r"segmented_segments|segmented_orders"):
            pool.confirm("a", within=connection)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE segmented_gone RENAME TO segmented_segments")
    assert invoices(every_database) == []
    webhook(pool, "a")
    assert judged(valkey.url, every_database) == (8, 1, 7)


@pytest.fixture
def selling(postgres_database: str, store: RedisStore) -> Iterator[Pool]:
    """Eight units in two segments, on PostgreSQL."""
    with Gate(postgres_database) as gate, psycopg.connect(conninfo(postgres_database), autocommit=True) as driver:
        gate.create()
        driver.execute(TABLE)
        made = Pool(store, SKU, gate=gate)
        made.open(stock=8, segments=2)
        yield made


@pytest.mark.real
def test_psycopgs_own_connection_stores_both_rows_or_neither(
    selling: Pool, postgres_database: str, valkey: ValkeyServer
) -> None:
    for order_id in ("a", "b", "c", "d"):
        selling.reserve(order_id)
    named: Any = {"row_factory": dict_row, "cursor_factory": psycopg.ClientCursor}
    with psycopg.connect(conninfo(postgres_database), **named) as driver:
        found = [selling.confirm("a", within=driver)]
        driver.execute(INVOICE, ["a"])
        driver.commit()
        selling.confirm("b", within=driver)
        driver.execute(INVOICE, ["b"])
        driver.rollback()
        found.append(selling.confirm("a", within=driver))
        with pytest.raises(psycopg.errors.UniqueViolation):
            driver.execute(INVOICE, ["a"])
        with pytest.raises(StoreRefused, match="nothing is stored: a failed statement"):
            selling.confirm("d", within=driver)
        driver.rollback()
        driver.autocommit = True
        with pytest.raises(InvalidInput, match=r"call it inside `with connection.transaction\(\)`$"):
            selling.confirm("c", within=driver)
        with driver.transaction():
            found.append(selling.confirm("c", within=driver))
    for sold in found:
        sold.tell()
    assert [(bool(sold), sold.replay) for sold in found] == [(True, False), (True, True), (True, False)]
    assert judged(valkey.url, postgres_database, forgets=True) == (8, 2, 4)
    assert invoices(postgres_database) == ["a"]


@pytest.mark.real
def test_psycopgs_connection_for_asyncio_stores_both_rows_or_neither(
    selling: Pool, postgres_database: str, valkey: ValkeyServer
) -> None:
    async def main() -> list[tuple[bool, bool]]:
        async with (
            AsyncGate(postgres_database) as gate,
            await AsyncRedisStore.from_url(valkey.url) as store,
            await psycopg.AsyncConnection.connect(conninfo(postgres_database), row_factory=dict_row) as driver,
        ):
            pool = AsyncPool(store, SKU, gate=gate)
            await pool.reserve("a", quantity=3)
            await pool.reserve("b", quantity=2)
            found = [await pool.confirm("a", within=driver), await pool.confirm("a", within=driver)]
            await driver.execute(INVOICE, ["a"])
            await driver.commit()
            await pool.confirm("b", within=driver)
            await driver.rollback()
            await driver.set_autocommit(True)
            with pytest.raises(InvalidInput, match="needs a transaction that has begun"):
                await pool.confirm("b", within=driver)
            async with driver.transaction():
                found.append(await pool.confirm("b", within=driver))
            for sold in found:
                await sold.tell()
            with pytest.raises(
                InvalidInput, match="is not an AsyncSession or AsyncConnection of SQLAlchemy or psycopg"
            ):
                await pool.confirm("b", within=connection)
            with pytest.raises(InvalidInput, match="with asyncio's, use AsyncPool and AsyncGate"):
                selling.confirm("b", within=driver)
        return [(bool(sold), sold.replay) for sold in found]

    assert asyncio.run(main()) == [(True, False), (True, True), (True, False)]
    assert judged(valkey.url, postgres_database) == (8, 5, 3)
    assert invoices(postgres_database) == ["a"]

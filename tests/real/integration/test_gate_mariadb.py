"""The gate on MariaDB: what differs there, and which servers are refused."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Session

from segmented import Pool, RedisStore
from segmented.errors import InvalidInput, StoreRefused, TransactionConflict
from segmented.orders import Gate, Migrated, connect, migrate
from segmented.orders.answers import Confirmed
from segmented.orders.pruning import PruneRows
from segmented.orders.tables import HEAD
from segmented.servers import ValkeyServer
from tests.fixtures.mariadb import MariaDbServer
from tests.support.pools.both_sides import judged, sql_rows
from tests.support.pools.engines import engine_of
from tests.support.pools.gating import NEW, confirm

pytestmark = pytest.mark.real

SKU: Final = "mug"
SOLD: Final = "SELECT sum(sold) FROM segmented_segments"
FIRST_READ: Final = text("SELECT count(*) FROM segmented_orders")
VOID: Final = text("INSERT INTO segmented_orders (sku, order_id, state, quantity) VALUES ('mug', 'a', 'void', 2)")


@pytest.fixture
def engine(mariadb_database: str) -> Iterator[Engine]:
    """A shop's own engine: REPEATABLE READ, as the server has it."""
    made = create_engine(mariadb_database)
    yield made
    made.dispose()


@pytest.fixture
def gate(engine: Engine) -> Iterator[Gate]:
    with Gate(engine) as made:
        made.create()
        yield made


@pytest.fixture
def pool(valkey: ValkeyServer, gate: Gate) -> Iterator[Pool]:
    """Eight units in two segments."""
    with RedisStore.from_url(valkey.url) as store:
        made = Pool(store, SKU, gate=gate)
        made.open(stock=8, segments=2)
        yield made


def test_a_transaction_that_began_before_an_order_was_sold_or_void_sees_it(
    pool: Pool, gate: Gate, engine: Engine, mariadb_database: str, valkey: ValkeyServer
) -> None:
    pool.reserve("a", quantity=2)
    pool.reserve("b", quantity=2)
    with Session(engine) as session, session.begin():
        session.execute(FIRST_READ)
        pool.confirm("a")
        gate.void(order_id="b", sku=SKU, quantity=2)
        first, second = (pool.confirm(order_id, within=session) for order_id in ("a", "b"))
    assert (first.state, first.replay, second.state, second.replay) == ("confirmed", True, "cancelled", True)
    assert pool.cancel("b").state == "cancelled"
    assert judged(valkey.url, mariadb_database) == (8, 2, 6)


def test_a_transaction_that_began_before_a_segment_was_filled_finds_the_other_units(
    pool: Pool, engine: Engine, mariadb_database: str, valkey: ValkeyServer
) -> None:
    pool.reserve("a", quantity=3)
    pool.reserve("b", quantity=5)
    with Session(engine) as session, session.begin():
        session.execute(FIRST_READ)
        pool.confirm("a")
        sold = pool.confirm("b", within=session)
    assert (sold.state, sold.replay) == ("confirmed", False)
    sold.tell()
    assert judged(valkey.url, mariadb_database) == (8, 8, 0)


def test_a_failed_call_leaves_nothing_in_a_transaction_that_goes_on(
    pool: Pool, engine: Engine, mariadb_database: str
) -> None:
    """Its units were taken when the order's row had to wait, and the wait came to its end."""
    pool.reserve("a", quantity=2)
    with engine.connect() as other, Session(engine) as session, session.begin():
        other.execute(VOID)
        session.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))
        with pytest.raises(StoreRefused, match="Lock wait timeout"):
            pool.confirm("a", within=session)
        other.rollback()
    assert sql_rows(mariadb_database, SOLD) == [(0,)]


def test_a_deadlock_ends_the_callers_transaction_even_if_its_error_is_handled(
    pool: Pool, engine: Engine, mariadb_database: str
) -> None:
    """MariaDB has rolled all of it back, so what followed would be stored without what came before."""
    pool.reserve("a", quantity=2)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE notes (number INTEGER PRIMARY KEY, said INTEGER)"))
        connection.execute(text("INSERT INTO notes SELECT seq, 0 FROM seq_1_to_20"))
        connection.execute(text("CREATE TABLE later (number INTEGER PRIMARY KEY)"))
    with engine.connect() as other, ThreadPoolExecutor(1) as threads, Session(engine) as session:
        other.execute(text("UPDATE notes SET said = 1 WHERE number > 1"))  # the one that wrote less is rolled back
        other.execute(VOID)
        session.execute(text("UPDATE notes SET said = 2 WHERE number = 1"))
        crossing = threads.submit(other.execute, text("UPDATE notes SET said = 1 WHERE number = 1"))
        with pytest.raises(TransactionConflict):
            pool.confirm("a", within=session)
        with pytest.raises(InvalidRequestError, match="This transaction is inactive"):
            _store_later(session)
        crossing.result()
        other.rollback()
    assert sql_rows(mariadb_database, "SELECT count(*) FROM later") == [(0,)]
    assert sql_rows(mariadb_database, SOLD) == [(0,)]


def _store_later(session: Session) -> None:
    session.execute(text("INSERT INTO later VALUES (1)"))
    session.commit()


def test_ids_and_customers_that_differ_in_a_blank_or_a_case_are_others(gate: Gate) -> None:
    gate.open(SKU, [9])
    for order_id in ("a", "A", "a ", "á"):
        assert confirm(gate, order_id, customer_id=order_id) == NEW
    assert [row.order_id for row in gate.each_order(SKU)] == ["A", "a", "a ", "á"]
    assert PruneRows(gate).erase("a", dry_run=False) == 1
    assert PruneRows(gate).delete(SKU, ["a", "A"]) == (2, 2)
    assert PruneRows(gate).delete(SKU, ["a "]) == (1, 1)
    assert (PruneRows(gate).units(SKU), gate.confirmed_units(SKU)) == (3, 4)


def test_rows_of_a_later_epoch_have_no_sequence(gate: Gate) -> None:
    """MariaDB sets the columns of an UPDATE one after the other."""
    gate.open(SKU, [9])
    assert confirm(gate, "a", sequence=7) == Confirmed(replay=False, sequence=7)
    totals = gate.stocking.raise_epoch(SKU, 1, epoch=2, opened=None)
    assert totals is not None
    assert [(row.epoch, row.sold, row.sequence) for row in totals.segments] == [(2, 1, 0)]


def test_a_connection_that_the_server_has_ended_is_replaced(
    mariadb_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(mariadb_database)
    gate.open(SKU, [9])
    with engine_of(gate).connect() as connection:
        number = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
    with create_engine(mariadb_database).connect() as administrator:
        administrator.exec_driver_sql(f"KILL {number}")
    assert confirm(gate, "a") == NEW


@pytest.mark.parametrize("step", [1, 2, 5])
def test_tables_whose_creation_was_interrupted_are_completed(mariadb_database: str, step: int) -> None:
    """MariaDB does not take the first ones back."""
    engine, seen = connect(mariadb_database), []

    def end(_: Connection, __: object, statement: str, *___: object) -> None:
        seen.extend([statement] if statement.strip().startswith(("CREATE", "INSERT")) else [])
        if len(seen) > step:
            raise KeyboardInterrupt

    event.listen(engine, "before_cursor_execute", end)
    with pytest.raises(KeyboardInterrupt):
        Gate(engine).create()
    event.remove(engine, "before_cursor_execute", end)
    assert len(inspect(engine).get_table_names()) < 8
    assert migrate(engine) == Migrated(None if step == 1 else HEAD, HEAD)
    assert Gate(engine).missing_tables() == ()
    engine.dispose()


def test_every_wait_on_mariadb_has_a_deadline(mariadb_database: str) -> None:
    engine = connect(mariadb_database, timeout=44.0)
    names = ("max_statement_time", "innodb_lock_wait_timeout", "lock_wait_timeout", "idle_transaction_timeout")
    with engine.connect() as connection:
        assert [connection.exec_driver_sql(f"SELECT @@{name}").scalar_one() for name in names] == [44, 22, 22, 66]
        assert connection.exec_driver_sql("SELECT @@tx_isolation").scalar_one() == "READ-COMMITTED"
    engine.dispose()


def test_a_server_that_would_lose_or_refuse_orders_is_refused(start_mariadb: Callable[..., MariaDbServer]) -> None:
    server = start_mariadb({"innodb-flush-log-at-trx-commit": "2", "log-bin": "log", "binlog-format": "STATEMENT"})
    for cure, sentence in (
        (
            "innodb_flush_log_at_trx_commit = 1",
            "innodb_flush_log_at_trx_commit=2 and would lose sold orders in a power",
        ),
        ("binlog_format = MIXED, read_only = 1", "has binlog_format=STATEMENT, which would copy other orders to"),
        ("read_only = 0", "is read-only, as a replica is, and takes no orders; name the primary"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            connect(server.url)
        with create_engine(server.url).connect() as administrator:
            administrator.exec_driver_sql("SET GLOBAL " + cure.replace(", ", ", GLOBAL "))
    connect(server.url).dispose()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://u:s3cr3t@127.0.0.1:1/shop", "cannot be used: Can't connect to MySQL server on '127.0.0.1'"),
        (
            "mysql://u:s3cr3t@127.0.0.1/shop?chrset=utf8",
            "cannot be used: there is no option chrset; did you mean charset?",
        ),
        ("mysql://u:s3cr3t@127.0.0.1/shop?ssl_ca=/no/such.pem", "cannot be used: No such file or directory"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_in_one_sentence(
    url: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pymysql.connections.SSL_ENABLED", True)
    with pytest.raises(Exception, match="the order database mysql://u:") as refused:
        connect(url)
    assert sentence in str(refused.value)
    assert "s3cr3t" not in str(refused.value)

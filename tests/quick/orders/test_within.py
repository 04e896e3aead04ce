"""A confirm within the caller's own transaction: the caller's row and the gate's are stored together, or neither is."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from sqlalchemy import Engine, create_engine, event, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from segmented import AsyncPool, AsyncRedisStore, Order, Outbox, Pool, RedisStore
from segmented.errors import AlreadySettled, InvalidInput, OrderQueued, PoolNotGated, SegmentedError
from segmented.orders import AsyncGate, Gate, audit_both, connect
from segmented.orders.answers import Return
from segmented.servers import ValkeyServer
from tests.support.pools.both_sides import judged, sql_rows
from tests.support.pools.gating import on_mariadb_too

SKU: Final = "mug"
WAITING: Final = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
INVOICE: Final = text("INSERT INTO invoices (order_id) VALUES (:order_id)")


def own_engine(database: str) -> Engine:
    """An engine as a shop makes it, which knows nothing of this library."""
    url = make_url(database)
    return create_engine(url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url)


@pytest.fixture
def engine(every_database: str) -> Iterator[Engine]:
    made = own_engine(every_database)
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE invoices (order_id VARCHAR(64) PRIMARY KEY)"))
    yield made
    made.dispose()


@pytest.fixture
def pool(store: RedisStore, engine: Engine) -> Iterator[Pool]:
    """Eight units in two segments, gated by the database of the shop's own engine."""
    with Gate(engine) as gate:
        gate.create()
        made = Pool(store, SKU, gate=gate)
        made.open(stock=8, segments=2)
        yield made


def invoices(database: str) -> list[str]:
    return sorted(order_id for (order_id,) in sql_rows(database, "SELECT order_id FROM invoices"))


def webhook(pool: Pool, engine: Engine, order_id: str) -> Any:  # noqa: ANN401  # a Sold
    """Take a payment, as the page says."""
    with Session(engine) as session, session.begin():
        sold = pool.confirm(order_id, within=session)
        if sold and not sold.replay:
            session.execute(INVOICE, {"order_id": order_id})
    return sold


def let_hold_end(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url) as server:
        server.zadd(f"seg:{{{SKU}:0}}:holds", {"a": 1}, xx=True)


@on_mariadb_too
def test_the_shops_row_and_the_gates_are_stored_together_and_the_pool_is_told(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    pool.reserve("a", quantity=3)
    sold = webhook(pool, engine, "a")
    assert (bool(sold), sold.state, sold.quantity, sold.replay) == (True, "confirmed", 3, False)
    assert pool.state().confirmed == 0
    for _ in range(2):
        assert sold.tell().state == "confirmed"
    assert judged(valkey.url, every_database) == (8, 3, 5)
    assert invoices(every_database) == ["a"]
    assert pool.audit().is_clean


@on_mariadb_too
def test_a_webhook_that_comes_again_is_a_replay_and_stores_no_second_row(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    pool.reserve("a")
    assert [webhook(pool, engine, "a").replay for _ in range(3)] == [False, True, True]
    webhook(pool, engine, "a").tell()
    assert webhook(pool, engine, "a").replay
    assert judged(valkey.url, every_database) == (8, 1, 7)
    assert invoices(every_database) == ["a"]


def test_a_rolled_back_transaction_stores_neither_and_telling_changes_nothing(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    pool.reserve("a", quantity=3)
    with engine.connect() as connection:
        transaction = connection.begin()
        sold = pool.confirm("a", within=connection)
        connection.execute(INVOICE, {"order_id": "a"})
        transaction.rollback()
    assert sold.tell() is None
    assert (pool.state().reserved, pool.gate.totals(SKU).sold) == (3, 0)  # type: ignore[union-attr]  # it has one
    assert invoices(every_database) == []
    webhook(pool, engine, "a").tell()
    assert judged(valkey.url, every_database) == (8, 3, 5)


def test_a_swallowed_refusal_of_the_gates_row_leaves_no_units_sold_without_it(
    store: RedisStore, open_gate: Callable[..., Gate], sqlite_url: str, valkey: ValkeyServer
) -> None:
    pool = Pool(store, SKU, gate=open_gate(sqlite_url))
    pool.open(stock=8, segments=2)
    pool.reserve("a", quantity=3)
    refuse = "CREATE TRIGGER no BEFORE INSERT ON segmented_orders BEGIN SELECT RAISE(ABORT, 'no'); END"
    with own_engine(sqlite_url).begin() as connection:
        connection.execute(text(refuse))
        with suppress(SegmentedError):
            pool.confirm("a", within=connection)
        connection.execute(text("DROP TRIGGER no"))
    assert sql_rows(sqlite_url, "SELECT sum(sold) FROM segmented_segments") == [(0,)]
    pool.confirm("a")
    assert judged(valkey.url, sqlite_url) == (8, 3, 5)


def test_if_nobody_tells_the_pool_the_end_of_the_hold_finds_the_order_sold(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    pool.reserve("a", quantity=3)
    webhook(pool, engine, "a")
    let_hold_end(valkey)
    assert [one.state for one in pool.expire()] == ["confirmed"]
    assert judged(valkey.url, every_database) == (8, 3, 5)


@pytest.mark.parametrize("is_sold", [False, True])
def test_an_order_changed_after_its_record_was_read_is_stored_with_what_it_kept(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer, *, is_sold: bool
) -> None:
    pool.reserve("a", quantity=3)
    changed: list[object] = []

    @event.listens_for(engine, "before_cursor_execute")
    def change(*call: object) -> None:
        if not changed:
            changed.append(call)
            pool.change("a", quantity=2)
            if is_sold:
                pool.confirm("a")

    sold = webhook(pool, engine, "a")
    assert (bool(sold), sold.quantity, sold.replay) == (True, 2, is_sold)
    assert pool.reserve("b", quantity=6)
    assert pool.confirm("b").state == "confirmed"
    sold.tell()
    assert judged(valkey.url, every_database) == (8, 8, 0)


def test_a_change_waits_for_the_transaction_that_has_stored_the_order(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    def is_waiting() -> bool:
        return not every_database.startswith("postgresql") or sql_rows(every_database, WAITING) == [(1,)]

    pool.reserve("a", quantity=3)
    with ThreadPoolExecutor(1) as thread:
        with Session(engine) as session, session.begin():
            sold = pool.confirm("a", within=session)
            changed = thread.submit(pool.change, "a", quantity=2)
            while not is_waiting():
                assert not changed.done()
        with pytest.raises(AlreadySettled, match="order 'a' is already confirmed: its quantity is not changed"):
            changed.result()
    assert pool.reserve("b", quantity=5)
    assert pool.confirm("b").state == "confirmed"
    sold.tell()
    assert judged(valkey.url, every_database) == (8, 8, 0)


@on_mariadb_too
def test_an_order_that_a_webhook_found_unknown_is_never_sold(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    sold = webhook(pool, engine, "a")
    assert (bool(sold), sold.state, sold.replay) == (False, "unknown", False)
    assert pool.reserve("a", quantity=3)
    for _ in range(2):
        sold = webhook(pool, engine, "a")
        assert (bool(sold), sold.state, sold.replay) == (False, "cancelled", True)
    let_hold_end(valkey)
    assert [one.state for one in pool.expire()] == ["expired"]
    assert judged(valkey.url, every_database) == (8, 0, 8)
    assert audit_both(pool, pool.gate).is_clean  # type: ignore[arg-type]  # it is a Gate


def test_a_webhook_that_comes_while_units_are_returned_is_a_replay(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    """The database has the return, and the pool not yet: its process is at it, or has died."""
    pool.reserve("a", quantity=3)
    webhook(pool, engine, "a").tell()
    pool.gate.returns.begin(Return(SKU, "a", 1, "rma-1"))  # type: ignore[union-attr]  # it has one
    sold = webhook(pool, engine, "a")
    assert (bool(sold), sold.state, sold.quantity, sold.replay) == (True, "confirmed", 2, True)
    sold.tell()
    assert pool.return_units("a", 1, return_id="rma-1").quantity == 2
    assert judged(valkey.url, every_database) == (8, 2, 6)


def test_a_webhook_for_an_order_that_waits_for_a_worker_is_put_off(
    pool: Pool, store: RedisStore, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    queue = Pool(store, SKU, gate=pool.gate, outbox=Outbox.under_lock())
    queue.submit("a", quantity=3)
    with pytest.raises(OrderQueued, match="order 'a' is queued: a worker decides it first, unless it is cancelled"):
        webhook(pool, engine, "a")
    assert sql_rows(every_database, "SELECT * FROM segmented_orders") == []
    queue.cancel("a")
    assert webhook(pool, engine, "a").state == "cancelled"
    assert judged(valkey.url, every_database) == (8, 0, 8)


@on_mariadb_too
@pytest.mark.parametrize("state", ["cancelled", "expired", "returned", "unknown"])
def test_a_late_webhook_gets_the_orders_state_as_a_value(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer, state: str
) -> None:
    if state != "unknown":
        pool.reserve("a", quantity=3)
    if state == "expired":
        let_hold_end(valkey)
        pool.expire()
    if state == "cancelled":
        pool.cancel("a")
    if state == "returned":
        pool.confirm("a")
        pool.return_units("a", 3, return_id="rma-1")
    sold = webhook(pool, engine, "a")
    assert (bool(sold), sold.state) == (False, state)
    sold.tell()
    assert judged(valkey.url, every_database) == (8, 0, 8)
    assert invoices(every_database) == []


@on_mariadb_too
def test_the_last_units_move_to_the_segment_that_needs_them(
    pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    for order_id, quantity in (("a", 3), ("b", 3), ("c", 2)):
        pool.reserve(order_id, quantity=quantity)
    with Session(engine) as session, session.begin():
        found = [pool.confirm(order_id, within=session) for order_id in ("a", "b", "c", "a")]
    assert [(bool(sold), sold.replay) for sold in found] == [(True, False), (True, False), (True, False), (True, True)]
    for sold in found:
        sold.tell()
    assert judged(valkey.url, every_database) == (8, 8, 0)


def test_what_is_no_transaction_of_the_gates_database_is_refused_in_one_sentence(
    store: RedisStore, pool: Pool, engine: Engine, tmp_path: Path, every_database: str
) -> None:
    pool.reserve("a", quantity=3)
    other, empty = (create_engine(f"sqlite:///{tmp_path / name}") for name in ("other.sqlite", "empty.sqlite"))
    with Gate(connect(f"sqlite:///{tmp_path / 'other.sqlite'}")) as gate:
        gate.create()
        Pool(store, "cup", gate=gate).open(stock=8, segments=2)
    for wrong in (other, empty):
        with (
            Session(wrong) as session,
            pytest.raises(InvalidInput, match=r"^within= is a transaction of another database"),
        ):
            pool.confirm("a", within=session)
    with engine.connect() as connection:
        for bad, said in (
            (connection, "needs a transaction that has begun"),
            (
                "session",
                "within=str is not a Session or Connection of SQLAlchemy, or a connection of Django or psycopg$",
            ),
            (connection.execution_options(isolation_level="AUTOCOMMIT"), "within= needs a transaction"),
        ):
            with pytest.raises(InvalidInput, match=said):
                pool.confirm("a", within=bad)
    with pytest.raises(PoolNotGated), Session(engine) as session:
        Pool(store, SKU).confirm("a", within=session)
    assert (pool.state().reserved, sql_rows(every_database, "SELECT sum(sold) FROM segmented_segments")) == (3, [(0,)])


@on_mariadb_too
def test_a_transaction_on_an_older_schema_or_already_broken_is_refused(
    pool: Pool, engine: Engine, every_database: str
) -> None:
    pool.reserve("a", quantity=3)
    with Session(engine) as session:
        with pytest.raises(Exception, match="invoices"):
            session.execute(text("INSERT INTO invoices (order_id, nothing) VALUES ('a', 1)"))
        if engine.dialect.name == "postgresql":
            with pytest.raises(SegmentedError, match=r"^order 'a' within a transaction: nothing is stored: a failed"):
                pool.confirm("a", within=session)
    with engine.begin() as connection:
        connection.execute(text("UPDATE segmented_alembic_version SET version_num = '0000'"))
    with pytest.raises(InvalidInput, match=r"tables of revision 0000, and this release of segmented knows"):
        webhook(pool, engine, "a")
    assert sql_rows(every_database, "SELECT sum(sold) FROM segmented_segments") == [(0,)]


def test_an_order_in_shards_is_confirmed_within_a_transaction_at_its_home(
    store: RedisStore, pool: Pool, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    from segmented.stock import ShardedPool  # noqa: PLC0415  # here alone

    shards = ShardedPool(store, "cup", gate=pool.gate)
    shards.open(stock=9, segments=4, shards=3, limit_per_customer=4)
    shards.reserve(Order("a", 3, "ann"))
    with Session(engine) as session, session.begin():
        sold = shards.confirm("a", customer_id="ann", within=session)
    assert sold
    sold.tell()
    assert judged(valkey.url, every_database) == (17, 3, 14)


@pytest.mark.real
def test_concurrent_webhooks_of_an_order_sell_it_once(
    store: RedisStore, postgres_database: str, valkey: ValkeyServer
) -> None:
    engine = own_engine(postgres_database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE invoices (order_id VARCHAR(64) PRIMARY KEY)"))
    with Gate(engine) as gate, ThreadPoolExecutor(8) as threads:
        gate.create()
        pool = Pool(store, SKU, gate=gate)
        pool.open(stock=8, segments=2)
        for number in range(4):
            pool.reserve(f"o-{number}", quantity=2)
        ids = [f"o-{number % 4}" for number in range(32)]
        found = list(threads.map(lambda order_id: webhook(pool, engine, order_id), ids))
        plain = threads.map(pool.confirm, ids)  # and the plain call, at the same time as the pool is told
        assert {sold.tell().state for sold in found} | {one.state for one in plain} == {"confirmed"}
    engine.dispose()
    assert all(found)
    assert sorted(sold.order_id for sold in found if not sold.replay) == ["o-0", "o-1", "o-2", "o-3"]
    assert invoices(postgres_database) == ["o-0", "o-1", "o-2", "o-3"]
    assert judged(valkey.url, postgres_database) == (8, 8, 0)


@pytest.mark.real
@pytest.mark.parametrize(
    ("database", "driver"), [("postgres_database", "postgresql+psycopg"), ("mariadb_database", "mysql+asyncmy")]
)
def test_asyncio_confirms_within_its_own_session_and_connection(
    request: pytest.FixtureRequest, valkey: ValkeyServer, database: str, driver: str
) -> None:
    given = request.getfixturevalue(database)
    url = make_url(given).set(drivername=driver)

    async def main() -> list[tuple[bool, bool]]:
        engine = create_async_engine(url)
        async with AsyncGate(engine) as gate, await AsyncRedisStore.from_url(valkey.url) as store:
            await gate.create()
            pool = AsyncPool(store, SKU, gate=gate)
            await pool.open(stock=8, segments=2)
            await pool.reserve("a", quantity=3)
            await pool.reserve("b", quantity=2)
            answers = []
            for order_id in ("a", "a"):
                async with AsyncSession(engine) as session, session.begin():
                    answers.append(await pool.confirm(order_id, within=session))
            async with engine.begin() as connection:
                answers.append(await pool.confirm("b", within=connection))
            for sold in answers:
                await sold.tell()
            with pytest.raises(InvalidInput, match="is not an AsyncSession or AsyncConnection"):
                await pool.confirm("b", within="session")
        await engine.dispose()
        return [(bool(sold), sold.replay) for sold in answers]

    assert asyncio.run(main()) == [(True, False), (True, True), (True, False)]
    assert judged(valkey.url, given) == (8, 5, 3)


def test_a_webhook_for_an_order_of_another_sku_sells_neither(
    pool: Pool, store: RedisStore, engine: Engine, every_database: str, valkey: ValkeyServer
) -> None:
    other = Pool(store, "pen", gate=pool.gate)
    other.open(stock=8, segments=2)
    pool.reserve("a", quantity=3)
    sold = webhook(other, engine, "a")
    assert (bool(sold), sold.state) == (False, "unknown")
    assert pool.state().reserved == 3
    webhook(pool, engine, "a").tell()
    assert judged(valkey.url, every_database) == (16, 3, 13)

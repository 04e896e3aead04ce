"""A lock that ends with a transaction which a session has joined, prepared, lost or taken out of its pool."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Final

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

from segmented import AsyncLease, AsyncMemoryStore, Lock, MemoryStore
from segmented.clock import ManualClock
from segmented.errors import LeaseLost
from segmented.locks.locked_decorator import locked
from tests.quick.contract.locks.test_locked_transactions import COUNT, is_free, is_free_async, seller

SOON: Final = 120.0
THREADS: Final = 4
STEPS: Final = 20


class Base(orm.DeclarativeBase):
    pass


class Counter(Base):
    __tablename__ = "counter"
    name: orm.Mapped[str] = orm.mapped_column(sa.String(20), primary_key=True)
    value: orm.Mapped[int]


@pytest.fixture
def engine(sqlite_url: str) -> Iterator[Engine]:
    made = sa.create_engine(sqlite_url)
    with made.begin() as connection:
        connection.execute(sa.text("CREATE TABLE sold (sku TEXT)"))
        Base.metadata.create_all(connection)
        connection.execute(sa.insert(Counter).values(name="a", value=0))
    yield made
    made.dispose()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def by_binds(connection: sa.Connection) -> orm.Session:
    return orm.Session(binds={Counter: connection}, join_transaction_mode="create_savepoint")


def by_get_bind(connection: sa.Connection) -> orm.Session:
    class Routed(orm.Session):
        def get_bind(self, *_: object, **__: object) -> sa.Connection:
            return connection

    return Routed(join_transaction_mode="create_savepoint")


JOINS: Final = {"binds": by_binds, "get_bind": by_get_bind}


def adder(store: MemoryStore) -> Callable[[orm.Session], None]:
    @locked("counter", store=store, transaction="session", timeout=SOON)
    def add(session: orm.Session) -> None:
        found = session.get_one(Counter, "a")
        found.value += 1

    return add


@pytest.mark.parametrize("join", JOINS)
def test_a_session_that_joins_a_connection_in_any_way_waits_for_its_commit(
    engine: Engine, store: MemoryStore, join: str
) -> None:
    with engine.connect() as connection:
        outer = connection.begin()
        with JOINS[join](connection) as session:
            adder(store)(session)
            session.commit()
            assert not is_free(store, "counter")
        assert not is_free(store, "counter")
        outer.commit()
    assert is_free(store, "counter")


@pytest.mark.parametrize("join", JOINS)
def test_no_step_of_sessions_that_join_connections_is_lost(postgres_database: str, join: str) -> None:
    store = MemoryStore()
    engine = sa.create_engine(postgres_database)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(Counter).values(name="a", value=0))
    add = adder(store)

    def work() -> None:
        for _ in range(STEPS):
            with engine.begin() as connection, JOINS[join](connection) as session:
                add(session)
                session.commit()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    with engine.connect() as connection:
        assert connection.execute(sa.select(Counter.value)).scalar_one() == THREADS * STEPS
    engine.dispose()


@pytest.mark.parametrize("is_late", [False, True])
def test_a_transaction_in_two_phases_is_covered_by_the_lease_or_not_prepared(
    mariadb_url: str, store: MemoryStore, clock: ManualClock, *, is_late: bool
) -> None:
    engine = sa.create_engine(mariadb_url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS sold"))
        connection.execute(sa.text("CREATE TABLE sold (sku TEXT)"))
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        seller(store)(connection, "shirt")
        assert is_late or not is_free(store)
        if is_late:
            clock.advance(60)
            successor = Lock(store, "shirt").acquire(timeout=0)
            with pytest.raises(LeaseLost, match="shirt"):
                transaction.prepare()
            transaction.rollback()
            successor.release()
        else:
            transaction.prepare()
            transaction.commit()
    assert is_free(store)
    with engine.begin() as connection:
        assert connection.execute(COUNT).scalar() == (0 if is_late else 1)
        connection.execute(sa.text("DROP TABLE sold"))
    engine.dispose()


@pytest.mark.parametrize(("makes", "end"), [("session", "commit"), ("connection", "rollback"), ("connection", "close")])
def test_i4_under_asyncio_the_lock_is_free_when_the_transaction_has_ended(
    postgres_database: str, makes: str, end: str
) -> None:
    async def run() -> list[bool]:
        store = AsyncMemoryStore()

        @locked("{sku}", store=store, transaction="session", lease_as="lease")
        async def sell(
            session: AsyncSession | AsyncConnection, sku: str, *, lease: AsyncLease | None = None
        ) -> list[bool]:
            assert lease is not None
            assert lease.name == sku
            await session.execute(sa.text("SELECT 1"))
            return [await is_free_async(store)]

        engine = create_async_engine(postgres_database)
        async with AsyncSession(engine) if makes == "session" else engine.connect() as work:
            free = await sell(work, "shirt")
            free.append(await is_free_async(store))
            await getattr(work, end)()
            if makes == "connection" and end != "close":
                await work.execute(sa.text("SELECT 1"))
            free.append(await is_free_async(store))
        await engine.dispose()
        return free

    assert asyncio.run(run()) == [False, False, True]

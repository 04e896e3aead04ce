"""Finished keys on PostgreSQL and MariaDB, by isolation level: what an old snapshot does not show is not repeated."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import pytest
import sqlalchemy
from sqlalchemy import Connection, create_engine, func, insert, make_url, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from segmented.dedup import AlreadyDone, AsyncDedup, AsyncRun
from segmented.dedup.sql import once, once_metadata
from segmented.errors import StaleToken, StoreRefused, TransactionConflict
from segmented.servers import ValkeyServer
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.support.workers.booking import SECONDS, TABLE, BookingService, bookings

LEVELS: Final = [
    ("postgres_database", "READ COMMITTED"),
    ("postgres_database", "SERIALIZABLE"),
    ("mariadb_url", "REPEATABLE READ"),
]
SNAPSHOTS: Final = LEVELS[1:2]
REFUSALS: Final = (AlreadyDone, StaleToken, TransactionConflict)


@pytest.fixture(params=LEVELS, ids=" ".join)
def service(request: pytest.FixtureRequest, valkey: ValkeyServer) -> Iterator[BookingService]:
    fixture, level = request.param
    engine = create_engine(request.getfixturevalue(fixture), isolation_level=level)
    for metadata in (bookings.metadata, once_metadata):
        metadata.drop_all(engine)
    bookings.metadata.create_all(engine)
    TABLE.create(engine)
    with RedisStore.from_url(valkey.url) as store:
        yield BookingService(engine, store)
    engine.dispose()


def look(connection: Connection) -> None:
    """Begin the transaction, and with it the snapshot where it has one."""
    connection.execute(select(func.count()).select_from(bookings)).scalar_one()


def book_and_finish(service: BookingService) -> None:
    run = service.begin("order-7")
    with service.engine.begin() as connection:
        service.book(connection)
        TABLE.finish_in(connection, run)


def test_two_holders_at_once_are_one_effect_at_any_level(service: BookingService) -> None:
    assert service.two_at_once() == (1, 1)


def lose_the_transaction(connection: Connection) -> None:
    """Let the database end it while the effect goes on: PostgreSQL at an error, MariaDB as a deadlock's victim."""
    if connection.dialect.name == "postgresql":
        with suppress(DBAPIError):
            connection.exec_driver_sql("SELECT 1/0")
    else:
        connection.exec_driver_sql("ROLLBACK")


def test_an_effect_whose_transaction_ended_within_it_is_not_taken_for_done(service: BookingService) -> None:
    def book(connection: Connection) -> str:
        booked = service.book(connection)
        lose_the_transaction(connection)
        return booked

    with pytest.raises(StoreRefused, match="nothing is stored"):
        TABLE.perform(service.engine, service.begin(), book)
    service.dedup.free("order-7")
    assert (service.perform(service.begin()), service.count()) == ("booking-2", 1)


def test_a_statement_that_fails_in_a_savepoint_leaves_the_effect_done(service: BookingService) -> None:
    def book(connection: Connection) -> str:
        booked = service.book(connection)
        with suppress(IntegrityError), connection.begin_nested():
            connection.execute(insert(bookings).values(id=connection.execute(select(bookings.c.id)).scalar_one()))
        return booked

    assert (TABLE.perform(service.engine, service.begin(), book), service.count()) == ("booking-1", 1)


def test_what_was_done_after_a_transaction_began_is_not_done_again_in_it(service: BookingService) -> None:
    zombie = service.begin()
    service.dedup.free("order-7")
    with pytest.raises(REFUSALS), service.engine.begin() as connection:  # noqa: PT012  # all in one transaction
        look(connection)
        book_and_finish(service)
        service.book(connection)
        TABLE.finish_in(connection, zombie)
    assert service.count() == 1


def test_work_done_and_forgotten_after_a_transaction_began_is_not_repeated_in_it(service: BookingService) -> None:
    service.perform(service.begin("order-1"))
    service.grow_old()
    with service.engine.begin() as connection:
        assert TABLE.forget(connection, older_than=3600) == 1

    booked = service.count()
    zombie = service.begin()
    service.dedup.free("order-7")
    with pytest.raises(REFUSALS), service.engine.begin() as connection:  # noqa: PT012  # all in one transaction
        look(connection)
        book_and_finish(service)
        service.grow_old()
        with service.engine.begin() as other:
            assert TABLE.forget(other, older_than=3600) == 1
        service.book(connection)
        TABLE.finish_in(connection, zombie)
    assert service.count() == booked + 1


@pytest.mark.parametrize("service", SNAPSHOTS, ids=" ".join, indirect=True)
def test_an_effect_that_the_database_asks_for_again_is_done_again(service: BookingService) -> None:
    with service.engine.begin() as connection:
        connection.execute(insert(bookings).values(id=999, order_id="a"))
    change = update(bookings).where(bookings.c.id == 999)
    calls = []

    def work(connection: Connection) -> int:
        calls.append(1)
        look(connection)
        if len(calls) == 1:
            with service.engine.begin() as other:
                other.execute(change.values(order_id="b"))
        connection.execute(change.values(order_id="c"))
        return len(calls)

    assert TABLE.perform(service.engine, service.begin(), work) == 2


@pytest.mark.parametrize("service", [LEVELS[0], LEVELS[2]], ids=" ".join, indirect=True)
def test_the_tables_may_be_made_by_many_at_once(service: BookingService) -> None:
    once_metadata.drop_all(service.engine)
    with ThreadPoolExecutor(8) as threads:
        for one in [threads.submit(TABLE.create, service.engine) for _ in range(8)]:
            one.result(SECONDS)
    with service.engine.connect() as connection:
        assert TABLE.stored(connection, "k", namespace="n") is None


class AsyncBookingService:
    """As `BookingService`, within one event loop."""

    def __init__(self, url: str, store: AsyncRedisStore) -> None:
        self.engine = create_async_engine(async_url(url))
        self.store, self.dedup = store, AsyncDedup(store, "bookings")
        self.calls = 0

    async def begin(self) -> AsyncRun:
        run = await self.dedup.begin("order-7")
        assert isinstance(run, AsyncRun)
        return run

    async def book(self, connection: AsyncConnection) -> str:
        self.calls += 1
        await connection.execute(insert(bookings).values(order_id="order-7"))
        return f"booking-{self.calls}"

    async def book_and_lose(self, connection: AsyncConnection) -> None:
        await self.book(connection)
        await connection.run_sync(lose_the_transaction)

    async def perform(self) -> str:
        return await TABLE.async_perform(self.engine, await self.begin(), self.book)

    async def count(self) -> int:
        async with self.engine.connect() as connection:
            return (await connection.execute(select(func.count()).select_from(bookings))).scalar_one()


def async_url(url: str) -> sqlalchemy.URL:
    parsed = make_url(url)
    return parsed.set(drivername="postgresql+psycopg" if parsed.get_backend_name() == "postgresql" else "mysql+asyncmy")


@pytest.mark.parametrize("service", [LEVELS[0], LEVELS[2]], ids=" ".join, indirect=True)
def test_asyncio_does_the_same(service: BookingService, valkey: ValkeyServer) -> None:
    database = service.engine.url.render_as_string(hide_password=False)

    async def scene() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            service = AsyncBookingService(database, store)
            async with service.engine.connect() as connection:
                await connection.run_sync(TABLE.create)
            with pytest.raises(StoreRefused, match="nothing is stored"):
                await TABLE.async_perform(service.engine, await service.begin(), service.book_and_lose)
            assert await service.count() == 0
            await service.dedup.free("order-7")
            service.calls = 0
            zombie = await service.begin()
            await service.dedup.free("order-7")
            assert await service.perform() == "booking-1"
            await store.client.flushall()
            assert await service.perform() == "booking-1"
            with pytest.raises(AlreadyDone):  # noqa: PT012  # both, in one transaction
                async with service.engine.begin() as connection:
                    await service.book(connection)
                    await connection.run_sync(TABLE.finish_in, zombie)
            async with service.engine.begin() as connection:
                await connection.execute(update(once).values(finished_at=datetime(2020, 1, 1, tzinfo=UTC)))
            async with service.engine.begin() as connection:
                assert await connection.run_sync(TABLE.stored, zombie.key, namespace="bookings") is not None
                assert await connection.run_sync(TABLE.forget, older_than=3600) == 1
            with pytest.raises(StaleToken):
                await TABLE.async_perform(service.engine, zombie, service.book)
            assert (await service.count(), service.calls) == (1, 3)
            await service.engine.dispose()

    asyncio.run(scene())

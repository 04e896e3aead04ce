"""Exactly once in a database: the effect and the row of its key in one transaction, whatever the store remembers."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
import sqlalchemy
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, func, insert, make_url, select, update
from sqlalchemy.ext.asyncio import create_async_engine

from segmented.dedup import AlreadyDone, AsyncDedup, AsyncRun, Dedup, OtherPayload, Replay, ResultUnkept, Run
from segmented.dedup.sql import OnceTable
from segmented.dedup.sql_tables import once, once_metadata
from segmented.errors import InvalidInput, StaleToken, StoreRefused
from segmented.orders import connect
from segmented.stores.redis import AsyncRedisStore, RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection

    from segmented.servers import ValkeyServer

bookings = Table("bookings", MetaData(), Column("id", Integer, primary_key=True), Column("order_id", String(50)))
TABLE: Final = OnceTable()
SECONDS: Final = 60.0


class BookingService:
    """A database with bookings, and a Dedup whose store can be emptied."""

    def __init__(self, engine: Engine, store: RedisStore) -> None:
        self.engine, self.store = engine, store
        self.dedup = Dedup(store, "bookings")
        self.calls = 0

    def begin(self, key: str = "order-7") -> Run:
        run = self.dedup.begin(key)
        assert isinstance(run, Run)
        return run

    def begin_beside(self, run: Run, key: str = "order-7") -> Run:
        """Begin another run while one goes on, as after a long pause of the first."""
        self.dedup.free(key)
        other = self.begin(key)
        assert other.fencing_token > run.fencing_token
        return other

    def book(self, connection: Connection) -> str:
        self.calls += 1
        connection.execute(insert(bookings).values(order_id="order-7"))
        return f"booking-{self.calls}"

    def perform(self, run: Run, **options: Any) -> str:  # noqa: ANN401  # those of perform
        return TABLE.perform(self.engine, run, self.book, **options)

    def count(self) -> int:
        with self.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(bookings)).scalar_one()

    def grow_old(self) -> None:
        """Let rows be some time old; MariaDB's clock, as we use it, has whole seconds."""
        time.sleep(1.1 if self.engine.dialect.name == "mysql" else 0.02)

    def two_at_once(self) -> tuple[int, int]:
        """Have two holders perform at the same time; returns how many results they got, and how many effects."""
        first = self.begin()
        second = self.begin_beside(first)
        together = threading.Barrier(2)

        def book(connection: Connection) -> str:
            if self.calls < 2:
                together.wait(SECONDS)
            return self.book(connection)

        with ThreadPoolExecutor(2) as threads:
            started = [threads.submit(TABLE.perform, self.engine, run, book) for run in (first, second)]
            results = {one.result(SECONDS) for one in started}
        return len(results), self.count()

    def flush(self) -> None:
        self.store.client.flushall()


@pytest.fixture(params=["sqlite_url", "postgres_database", "mariadb_url"])
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    made = create_engine(database)
    for metadata in (bookings.metadata, once_metadata):
        metadata.drop_all(made)
    bookings.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def service(engine: Engine, valkey: ValkeyServer) -> Iterator[BookingService]:
    TABLE.create(engine)
    with RedisStore.from_url(valkey.url) as store:
        yield BookingService(engine, store)


def test_effect_and_row_are_committed_together_and_repeats_get_the_result(service: BookingService) -> None:
    run = service.begin()
    assert service.perform(run) == "booking-1"
    found = service.dedup.begin("order-7")
    assert isinstance(found, Replay)
    assert found.result == "booking-1"
    with service.engine.connect() as connection:
        row = TABLE.stored(connection, run.key, namespace="bookings")
        assert TABLE.stored(connection, "other", namespace="bookings") is None
    assert row is not None
    assert (row.kind, row.body, row.fencing_token, row.message) == (
        "value",
        '"booking-1"',
        run.fencing_token,
        run.message_id,
    )
    assert service.count() == 1


def test_a_store_that_forgot_everything_does_not_have_it_done_again(service: BookingService) -> None:
    service.perform(service.begin())
    service.flush()
    assert service.perform(service.begin()) == "booking-1"
    assert (service.calls, service.count()) == (1, 1)
    assert isinstance(service.dedup.begin("order-7"), Replay)


def test_a_store_that_forgets_in_mid_run_and_a_redelivery_are_one_row(service: BookingService) -> None:
    first = service.begin()

    def slow(connection: Connection) -> str:
        if service.calls == 0:
            service.flush()
            service.perform(service.begin())  # the redelivery, from its beginning to its end
        return service.book(connection)

    assert TABLE.perform(service.engine, first, slow) == "booking-1"
    assert service.count() == 1
    found = service.dedup.begin("order-7")
    assert isinstance(found, Replay)
    assert found.result == "booking-1"


def test_a_run_that_the_store_lost_keeps_what_it_committed(service: BookingService) -> None:
    run = service.begin()

    def forgotten(connection: Connection) -> str:
        service.flush()
        return service.book(connection)

    assert TABLE.perform(service.engine, run, forgotten) == "booking-1"
    assert service.perform(service.begin()) == "booking-1"
    assert service.count() == 1


def test_two_holders_at_once_are_one_effect(service: BookingService) -> None:
    assert service.two_at_once() == (1, 1)


def test_by_hand_the_second_is_told_the_first_ones_result_and_rolls_back(service: BookingService) -> None:
    first = service.begin()
    second = service.begin_beside(first)
    with service.engine.begin() as connection:
        TABLE.finish_in(connection, second, {"room": 5})
    with pytest.raises(AlreadyDone, match="roll back") as raised, service.engine.begin() as connection:  # noqa: PT012  # both, in one transaction
        service.book(connection)
        TABLE.finish_in(connection, first, {"room": 6})
    assert (raised.value.result, service.count()) == ({"room": 5}, 0)
    assert raised.value.replay.message_id == second.message_id
    assert 0 <= raised.value.replay.age < SECONDS


def test_an_error_of_the_effect_rolls_both_back(service: BookingService) -> None:
    def fail(connection: Connection) -> str:
        service.book(connection)
        message = "no rooms"
        raise LookupError(message)

    with pytest.raises(LookupError), service.begin() as run:
        TABLE.perform(service.engine, run, fail)
    assert service.count() == 0
    assert service.perform(service.begin()) == "booking-2"


def test_a_holder_older_than_what_was_forgotten_is_refused_and_a_new_one_is_not(service: BookingService) -> None:
    zombie = service.begin()
    service.perform(service.begin_beside(zombie))
    service.grow_old()
    with service.engine.begin() as connection:
        assert TABLE.forget(connection, older_than=0.001) == 1
    with pytest.raises(StaleToken):
        service.perform(zombie)
    assert service.count() == 1
    service.flush()
    assert service.perform(service.begin()) == "booking-3"
    assert service.count() == 2


def test_a_holder_whose_own_row_was_forgotten_does_not_do_it_again(service: BookingService) -> None:
    run = service.begin()
    service.perform(run)
    service.grow_old()
    with service.engine.begin() as connection:
        assert TABLE.forget(connection, older_than=0.001) == 1
    with pytest.raises(StaleToken):
        service.perform(run)
    assert service.count() == 1


def test_a_younger_row_of_an_older_token_is_kept(service: BookingService) -> None:
    late = service.begin("late")
    service.perform(service.begin())
    with service.engine.begin() as connection:
        connection.execute(update(once).values(finished_at=datetime(2026, 1, 1, tzinfo=UTC)))
    TABLE.perform(service.engine, late, lambda _: None)
    with service.engine.begin() as connection:
        assert TABLE.forget(connection, older_than=3600) == 1
        assert TABLE.stored(connection, late.key, namespace="bookings") is not None


def test_only_rows_that_are_old_enough_and_of_the_namespace_are_forgotten(service: BookingService) -> None:
    run = service.begin()
    service.perform(run)
    other = Dedup(service.store, "others").begin("order-7")
    assert isinstance(other, Run)
    service.perform(other)
    service.grow_old()
    with service.engine.begin() as connection:
        assert TABLE.forget(connection, older_than=3600) == 0
        assert TABLE.forget(connection, older_than=0.001, namespace="others") == 1
        assert TABLE.stored(connection, run.key, namespace="bookings") is not None
        assert TABLE.forget(connection, older_than=0.001) == 1
        assert TABLE.forget(connection, older_than=0.001) == 0


def test_another_payload_under_the_key_is_refused_and_not_called(service: BookingService) -> None:
    service.perform(service.begin(), payload={"room": 5})
    service.flush()
    with pytest.raises(OtherPayload), service.begin() as run:
        service.perform(run, payload={"room": 6})
    assert service.perform(service.begin(), payload={"room": 5}) == "booking-1"
    assert service.calls == 1


def test_a_result_that_cannot_be_written_is_done_all_the_same(service: BookingService) -> None:
    def unwritable(connection: Connection) -> set[int]:
        service.book(connection)
        return {1}

    assert TABLE.perform(service.engine, service.begin(), unwritable) == {1}
    service.flush()
    with pytest.raises(ResultUnkept), service.begin() as run:
        TABLE.perform(service.engine, run, unwritable)
    assert service.count() == 1


def test_keys_that_differ_in_case_alone_are_two(service: BookingService) -> None:
    for namespace in ("Case", "case"):
        run = Dedup(service.store, namespace).begin("order-7")
        assert isinstance(run, Run)
        service.perform(run)
    assert service.count() == 2


@pytest.mark.parametrize("database", ["postgres_database", "mariadb_url"], indirect=True)
def test_the_tables_may_be_made_by_many_at_once(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as threads:
        for one in [threads.submit(TABLE.create, engine) for _ in range(8)]:
            one.result(SECONDS)
    with engine.connect() as connection:
        assert TABLE.stored(connection, "k", namespace="n") is None


def test_a_table_that_is_missing_is_named_with_what_makes_it(engine: Engine, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        run = BookingService(engine, store).begin()
        with pytest.raises(StoreRefused, match="segmented_once"), engine.begin() as connection:
            TABLE.finish_in(connection, run)


def test_a_connection_in_autocommit_is_refused(valkey: ValkeyServer, sqlite_url: str, postgres_database: str) -> None:
    with RedisStore.from_url(valkey.url) as store:
        for url in (sqlite_url, postgres_database):
            engine = connect(url)
            TABLE.create(engine)
            service = BookingService(engine, store)
            run = service.begin(url)
            with pytest.raises(InvalidInput, match="this connection is in autocommit"), engine.connect() as connection:
                TABLE.finish_in(connection, run)
            with engine.connect() as connection:
                assert TABLE.stored(connection, run.key, namespace="bookings") is None
            engine.dispose()


# --- asyncio ---


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

    async def perform(self) -> str:
        return await TABLE.async_perform(self.engine, await self.begin(), self.book)

    async def count(self) -> int:
        async with self.engine.connect() as connection:
            return (await connection.execute(select(func.count()).select_from(bookings))).scalar_one()


def async_url(url: str) -> sqlalchemy.URL:
    parsed = make_url(url)
    return parsed.set(drivername="postgresql+psycopg" if parsed.get_backend_name() == "postgresql" else "mysql+asyncmy")


@pytest.mark.parametrize("database", ["postgres_database", "mariadb_url"], indirect=True)
def test_asyncio_does_the_same(engine: Engine, database: str, valkey: ValkeyServer) -> None:
    async def scene() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            service = AsyncBookingService(database, store)
            await TABLE.async_create(service.engine)
            zombie = await service.begin()
            await service.dedup.free("order-7")
            assert await service.perform() == "booking-1"
            await store.client.flushall()
            assert await service.perform() == "booking-1"
            with pytest.raises(AlreadyDone):  # noqa: PT012  # both, in one transaction
                async with service.engine.begin() as connection:
                    await service.book(connection)
                    await TABLE.async_finish_in(connection, zombie)
            await asyncio.sleep(1.1)
            async with service.engine.begin() as connection:
                assert await TABLE.async_stored(connection, zombie.key, namespace="bookings") is not None
                assert await TABLE.async_forget(connection, older_than=0.001) == 1
            with pytest.raises(StaleToken):
                await TABLE.async_perform(service.engine, zombie, service.book)
            assert (await service.count(), service.calls) == (1, 3)
            await service.engine.dispose()

    assert engine.dialect.name in {"postgresql", "mysql", "mariadb"}
    asyncio.run(scene())

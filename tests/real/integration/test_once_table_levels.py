"""Finished keys at each isolation level: what an old snapshot does not show is not done twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from sqlalchemy import create_engine, func, insert, select, update

from segmented.dedup import AlreadyDone
from segmented.dedup.sql_tables import once_metadata
from segmented.errors import StaleToken, TransactionConflict
from segmented.stores.redis import RedisStore
from tests.real.integration.test_once_table import TABLE, BookingService, bookings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from segmented.servers import ValkeyServer

LEVELS: Final = [
    ("postgres_database", "READ COMMITTED"),
    ("postgres_database", "REPEATABLE READ"),
    ("postgres_database", "SERIALIZABLE"),
    ("mariadb_url", "READ COMMITTED"),
    ("mariadb_url", "REPEATABLE READ"),
]
SNAPSHOTS: Final = LEVELS[1:3]
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


def test_what_was_done_after_a_transaction_began_is_not_done_again_in_it(service: BookingService) -> None:
    zombie = service.begin()
    service.dedup.free("order-7")
    with pytest.raises(REFUSALS), service.engine.begin() as connection:  # noqa: PT012  # all in one transaction
        look(connection)
        book_and_finish(service)
        service.book(connection)
        TABLE.finish_in(connection, zombie)
    assert service.count() == 1


@pytest.mark.parametrize("forgotten_before", [False, True])
def test_what_was_done_and_forgotten_after_a_transaction_began_is_not_done_again_in_it(
    service: BookingService, *, forgotten_before: bool
) -> None:
    if forgotten_before:
        service.perform(service.begin("order-1"))
        service.grow_old()
        with service.engine.begin() as connection:
            assert TABLE.forget(connection, older_than=0.001) == 1
    booked = service.count()
    zombie = service.begin()
    service.dedup.free("order-7")
    with pytest.raises(REFUSALS), service.engine.begin() as connection:  # noqa: PT012  # all in one transaction
        look(connection)
        book_and_finish(service)
        service.grow_old()
        with service.engine.begin() as other:
            assert TABLE.forget(other, older_than=0.001) == 1
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

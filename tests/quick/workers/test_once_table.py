"""Exactly once in a database: the effect and the row of its key in one transaction, whatever the store remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from segmented.dedup import AlreadyDone, Dedup, OtherPayload, Replay, ResultUnkept, Run
from segmented.errors import InvalidInput, StaleToken, StoreRefused
from segmented.orders import connect
from segmented.stores.redis import RedisStore
from tests.support.workers.booking import SECONDS, TABLE, BookingService, bookings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

    from segmented.servers import ValkeyServer


@pytest.fixture
def engine(sqlite_url: str) -> Iterator[Engine]:
    made = create_engine(sqlite_url)
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
        assert TABLE.forget(connection, older_than=3600) == 1
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
        assert TABLE.forget(connection, older_than=3600) == 1
    with pytest.raises(StaleToken):
        service.perform(run)
    assert service.count() == 1


def test_a_younger_row_of_an_older_token_is_kept(service: BookingService) -> None:
    late = service.begin("late")
    service.perform(service.begin())
    service.grow_old()
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
    with service.engine.begin() as connection:
        assert TABLE.forget(connection, older_than=3600) == 0
    service.grow_old()
    with service.engine.begin() as connection:
        assert TABLE.forget(connection, older_than=3600, namespace="others") == 1
        assert TABLE.stored(connection, run.key, namespace="bookings") is not None
        assert TABLE.forget(connection, older_than=3600) == 1
        assert TABLE.forget(connection, older_than=3600) == 0


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


def test_a_table_that_is_missing_is_named_with_what_makes_it(engine: Engine, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        run = BookingService(engine, store).begin()
        with pytest.raises(StoreRefused, match="segmented_once"), engine.begin() as connection:
            TABLE.finish_in(connection, run)


def test_a_connection_in_autocommit_is_refused(valkey: ValkeyServer, sqlite_url: str) -> None:
    with RedisStore.from_url(valkey.url) as store:
        for url in (sqlite_url,):
            engine = connect(url)
            TABLE.create(engine)
            service = BookingService(engine, store)
            run = service.begin(url)
            with pytest.raises(InvalidInput, match="this connection is in autocommit"), engine.connect() as connection:
                TABLE.finish_in(connection, run)
            with engine.connect() as connection:
                assert TABLE.stored(connection, run.key, namespace="bookings") is None
            engine.dispose()

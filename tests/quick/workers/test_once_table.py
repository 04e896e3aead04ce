"""Run once in a worker: the table, eager tasks, and bodies that never run twice."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.orm import Session

from segmented.dedup import AlreadyDone, Dedup, OtherPayload, Replay, ResultUnkept, Run
from segmented.dedup.celery.settings import close_stores
from segmented.errors import InvalidInput, StaleToken, StoreRefused
from segmented.models.dedup import Freed
from segmented.orders import connect
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore
from tests.support.workers.booking import TABLE, BookingService, bookings
from tests.support.workers.once_app import build
from tests.support.workers.once_steps import Setup


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


def test_an_error_of_the_effect_rolls_both_back(service: BookingService) -> None:
    def fail(connection: Connection) -> str:
        service.book(connection)
        raise LookupError("no rooms")

    with pytest.raises(LookupError), service.begin() as run:
        TABLE.perform(service.engine, run, fail)
    assert service.count() == 0
    assert service.perform(service.begin()) == "booking-2"


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
    def unwritable(connection: Connection) -> complex:
        service.book(connection)
        return 1j

    assert TABLE.perform(service.engine, service.begin(), unwritable) == 1j
    service.flush()
    with pytest.raises(ResultUnkept), service.begin() as run:
        TABLE.perform(service.engine, run, unwritable)
    assert service.count() == 1


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


@pytest.fixture
def setup(valkey: ValkeyServer, tmp_path: Path) -> Setup:
    return Setup(records=valkey.url, log=str(tmp_path / "log"), conf={"task_always_eager": True})


@pytest.fixture
def tasks(setup: Setup) -> Iterator[Any]:
    with closing(build(setup)) as app:
        yield app.tasks
    close_stores()


def runs(setup: Setup) -> int:
    with open(setup.log) as log:  # noqa: PTH123  # a path in text
        return sum(line.endswith(" begin\n") for line in log)


def test_an_eager_repeat_gets_the_kept_result_and_does_not_run(tasks: Any, setup: Setup) -> None:  # noqa: ANN401  # tasks by name
    assert tasks["kept"].delay("a", 1).get() == ["a", 1]
    assert tasks["kept"].delay("a", 1).get() == ["a", 1]
    assert runs(setup) == 1
    with pytest.raises(OtherPayload, match=r"of 'kept' keyed by '{key}' was used .*: a repeat needs the same value, "):
        tasks["kept"].delay("a", 2)


@pytest.mark.parametrize("name", ["retried", "unsteady"])
def test_an_eager_retry_runs_under_its_own_claim(tasks: Any, setup: Setup, name: str) -> None:  # noqa: ANN401  # tasks by name
    assert tasks[name].delay("a", 2).get() == 2
    assert runs(setup) == 3
    assert tasks[name].delay("a", 0).get() == 0


def test_a_task_explains_and_frees_the_key_of_a_call(tasks: Any, setup: Setup) -> None:  # noqa: ANN401  # tasks by name
    kept = tasks["kept"]
    assert kept.once.explain("a", 1).splitlines()[1:] == [
        "nobody holds it, and no outcome is kept",
        "a repeat now runs",
    ]
    first = kept.delay("a", 1)
    said = kept.once.explain("a", value=1)
    assert f"done: message {first.id} ended" in said
    assert said.splitlines()[-1] == "a repeat now gets the kept outcome and does not run"
    assert kept.once.free("a", 1) == Freed("done", first.id)
    assert (kept.delay("a", 1).is_repeat, runs(setup)) == (False, 2)


def test_a_serial_task_has_no_key_to_explain_or_free_and_says_where_to_look(tasks: Any) -> None:  # noqa: ANN401  # tasks by name
    serial = tasks["serial"]
    key = serial.once_key("a", 1)
    for ask in (serial.once.explain, serial.once.free):
        with pytest.raises(InvalidInput, match=f"'serial' is serial: .* segmented dedup explain {key} --message ID"):
            ask("a", 1)


def test_a_result_without_keep_is_recorded_for_two_hours_and_no_repeat_gets_it(
    tasks: Any,  # noqa: ANN401  # tasks by name
    valkey: ValkeyServer,
) -> None:
    assert tasks["plain"].delay("a", 1).get() == ["a", 1]
    with redis.Redis.from_url(valkey.url, decode_responses=True) as server:
        (record,) = [key for key in server.scan_iter() if server.hget(key, "body") == '["a", 1]']
        left = server.pttl(record)
    assert 7_000_000 < left <= 7_200_000
    assert tasks["plain"].delay("a", 2).get() == ["a", 2]


def test_a_run_is_noted_in_the_callers_own_session_and_only_if_that_commits(service: BookingService) -> None:
    first = service.begin()
    with Session(service.engine) as session:
        first.finish_in(session, "of a transaction that is rolled back")
    with Session(service.engine) as session, session.begin():
        first.finish_in(session, "booking-1")
        session.execute(bookings.insert().values(order_id="order-7"))
    service.dedup.free("order-7")  # Redis forgets
    second = service.begin()
    with pytest.raises(AlreadyDone) as done, Session(service.engine) as session:
        second.finish_in(session, "booking-2")
    assert done.value.result == "booking-1"
    second.abandon()
    assert service.count() == 1

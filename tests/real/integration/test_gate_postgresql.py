"""Effects that only a server across a network shows: round trips, lost replies, a paused server, greenlets."""

import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from sqlalchemy import Connection, make_url, text

from segmented.errors import DatabaseUnavailable, InvalidInput, NotConfirmed, StoreRefused
from segmented.locks.dead_letters import Work
from segmented.locks.dead_letters_sql import SqlDeadLetters
from segmented.orders import Gate, connect
from segmented.orders.answers import Return, SegmentRow
from segmented.orders.return_rows import ReturnStored
from tests.fixtures.pgbouncer import PgBouncer
from tests.support.pools.engines import engine_of
from tests.support.pools.gating import NEW, REPLAY, claim, confirm, watch_errors
from tests.support.proxy import PostgresProxy

PREPARED_AFTER: Final = 5
"""Uses of a statement on a connection after which the driver has the server prepare it, in a round trip of its own."""


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(postgres_database) as proxy:
        yield proxy


# --- one statement, one round trip ---


@pytest.mark.parametrize("fence", [None, 2**33])
def test_a_confirm_is_one_statement_and_one_round_trip_and_its_commit_is_part_of_it(
    postgres_database: str, open_gate: Callable[..., Gate], fence: int | None
) -> None:
    gate = open_gate(postgres_database, pool_size=1)
    gate.open("mug", [200] * 4)
    messages = traced(gate, lambda number: confirm(gate, f"o-{number}", segment=number % 4, fence=fence), 100)
    assert messages.count("Sync") == messages.count("ReadyForQuery") == 100 + 1  # one to have it prepared
    assert messages.count("Execute") == messages.count("CommandComplete") == 100
    assert messages.count("Parse") == PREPARED_AFTER + 1
    assert messages.count("Query") == 0  # as BEGIN, COMMIT and ROLLBACK would be sent
    assert gate.totals("mug").sold == 100


def test_whether_an_order_is_decided_is_one_prepared_statement(
    postgres_database: str, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(postgres_database, pool_size=1)
    gate.open("mug", [9])
    messages = traced(gate, lambda number: None if gate.is_decided("mug", f"o-{number}") else NEW, 100)
    assert messages.count("Sync") == messages.count("ReadyForQuery") == 100 + 1  # one to have it prepared
    assert messages.count("Parse") == PREPARED_AFTER + 1
    assert messages.count("Query") == 0


def confirm_with_body(gate: Gate, order_id: str) -> object:
    with gate.transaction(**claim(order_id)):
        return NEW


def traced(gate: Gate, work: Callable[[int], object], times: int) -> list[str]:
    """Do `work` so often and return the names of the protocol's messages, as libpq itself logs them."""
    with engine_of(gate).connect() as connection:  # the pool's one connection
        link = connection.connection.driver_connection.pgconn  # type: ignore[union-attr]  # psycopg's own
    with tempfile.TemporaryFile("w+") as log:
        link.trace(log.fileno())
        assert [work(number) for number in range(times)] == [NEW] * times
        link.untrace()
        log.seek(0)
        lines = [line.split("\t") for line in log]
    return [fields[3].strip() for fields in lines if len(fields) > 3 and fields[1] in {"F", "B"}]


def test_updates_of_segment_rows_stay_on_their_page(postgres_database: str, open_gate: Callable[..., Gate]) -> None:
    """Free space and no index on what changes: PostgreSQL's heap-only updates, which leave the index alone."""
    with open_gate(postgres_database) as gate:
        gate.open("mug", [1] * 500)
        assert [confirm(gate, f"o-{number}", segment=number) for number in range(500)] == [NEW] * 500
    with engine_of(open_gate(postgres_database)).connect() as connection:  # to ask the server
        counted = text("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'segmented_segments'")
        while (found := connection.execute(counted).one())[0] < 500:  # a session reports what it counted when it ends
            connection.execute(text("SELECT pg_sleep(0.01)"))
    assert found == (500, 500)


def test_a_constraint_of_somebody_elses_is_a_refusal(postgres_database: str, open_gate: Callable[..., Gate]) -> None:
    gate = open_gate(postgres_database)
    gate.open("mug", [9])
    with engine_of(gate).connect() as connection:  # an administrator's statement
        connection.execute(text("ALTER TABLE segmented_orders ADD CONSTRAINT small CHECK (quantity < 3)"))
    with pytest.raises(StoreRefused, match='violates check constraint "small"'):
        confirm(gate, "o-1", quantity=3)
    assert gate.totals("mug").sold == 0
    with engine_of(gate).connect() as connection:  # an administrator's statement
        connection.execute(text("ALTER TABLE segmented_segments ADD CONSTRAINT few CHECK (quota < 10)"))
    with pytest.raises(StoreRefused, match='violates check constraint "few"'):
        gate.open("cup", [10])


# --- a network that fails ---


def test_a_lost_reply_is_asked_for_again_and_sells_once(proxy: PostgresProxy, open_gate: Callable[..., Gate]) -> None:
    gate = open_gate(proxy.url)
    gate.open("mug", [5, 5])
    proxy.swallow_replies(1, to=b"lost-1")
    assert confirm(gate, "lost-1", quantity=2, fence=7) == REPLAY
    assert proxy.lost.is_set()
    assert gate.totals("mug").segments == (SegmentRow(0, 5, 2, 7, 1), SegmentRow(1, 5, 0, 0, 1))
    assert gate.confirmed_units("mug") == 2


def test_connections_that_died_unseen_are_replaced(postgres_database: str, open_gate: Callable[..., Gate]) -> None:
    gate, killer = open_gate(postgres_database, pool_size=1), open_gate(postgres_database, pool_size=1)
    gate.open("mug", [5])
    for order_id, work in (("o-1", confirm), ("o-2", confirm_with_body)):
        with engine_of(killer).connect() as connection:  # an administrator's statement
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            ).all()
        assert work(gate, order_id) == NEW
    assert gate.totals("mug").sold == 2


def test_a_lost_commit_of_a_transaction_is_reported_and_asking_again_tells(
    proxy: PostgresProxy, open_gate: Callable[..., Gate]
) -> None:
    gate = open_gate(proxy.url)
    gate.open("mug", [5])
    proxy.swallow_replies(1, to=b"COMMIT")
    with pytest.raises(DatabaseUnavailable, match="did not answer"):
        confirm_with_body(gate, "o-1")
    with pytest.raises(NotConfirmed) as caught:
        confirm_with_body(gate, "o-1")
    assert caught.value.answer == REPLAY
    assert gate.totals("mug").sold == 1


def void(gate: Gate, order_id: str) -> object:
    return gate.void(order_id=order_id, sku="mug", quantity=1)


@pytest.mark.parametrize(("work", "heard"), [(void, "no reply within 3 s"), (confirm, "the connection is closed")])
def test_a_server_that_stands_still_is_given_up_at_the_deadline(
    proxy: PostgresProxy, open_gate: Callable[..., Gate], work: Callable[[Gate, str], object], heard: str
) -> None:
    open_gate(proxy.url).open("mug", [5])
    gate = open_gate(proxy.url, timeout=2.0)
    errors = watch_errors(gate)
    proxy.freeze()
    with pytest.raises(DatabaseUnavailable, match="connection timeout expired"):
        work(gate, "o-1")
    assert len(errors) == 2
    assert heard in errors[0]  # the second error is that of the attempt to connect again


class Struck(BaseException):
    """Raised by a signal handler, as by a framework's time limit."""


def test_a_signal_in_the_middle_of_a_confirm_leaves_no_reply_for_the_next_statement(
    postgres_database: str, open_gate: Callable[..., Gate], caplog: pytest.LogCaptureFixture
) -> None:
    gate, other = open_gate(postgres_database, pool_size=1, timeout=60.0), open_gate(postgres_database, timeout=60.0)
    gate.open("mug", [5])

    def strike(*_: object) -> None:
        raise Struck

    def strike_when_it_waits(connection: Connection) -> None:
        while not connection.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar_one():
            pass
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, strike)
    try:
        with other.transaction(**claim("o-1")) as connection:
            striking = threading.Thread(target=strike_when_it_waits, args=(connection,))
            striking.start()
            with pytest.raises(Struck):
                confirm(gate, "o-2")
            striking.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not gate.is_decided("mug", "o-3")
    assert confirm(gate, "o-2") in (NEW, REPLAY)  # its first statement may have gone on without its caller
    assert (gate.totals("mug").sold, caplog.messages) == (2, [])


# --- greenlets ---


# The gate behind PgBouncer in transaction mode: refused with the cure, and after the cure every order is stored.


ORDERS = 200
THREADS = 8


@pytest.mark.parametrize("ignored", ["", "options"])
def test_a_pooler_that_drops_the_settings_is_refused_until_the_role_has_them(
    start_pgbouncer: Callable[..., PgBouncer], postgres_database: str, ignored: str
) -> None:
    url = start_pgbouncer(pool_size=3, ignored=ignored).in_front_of(postgres_database)
    with pytest.raises(InvalidInput, match="is behind a connection pooler that drops statement_timeout, ") as refused:
        connect(url)
    cures = re.findall(r"ALTER ROLE [^;]+;", str(refused.value))
    assert len(cures) == 3
    engine = connect(postgres_database)
    with engine.connect() as connection:
        for cure in cures:
            connection.execute(text(cure.replace(" SET ", f" IN DATABASE {engine.url.database} SET ", 1)))
    engine.dispose()
    pooler = start_pgbouncer(pool_size=3, ignored=ignored)  # a new one: its connections are new, too
    with Gate(connect(pooler.in_front_of(postgres_database), pool_size=THREADS)) as gate:
        gate.create()
        gate.open("mug", [ORDERS])
        with ThreadPoolExecutor(THREADS) as threads:
            answers = list(threads.map(lambda number: gate.confirm(**claim(f"o-{number}")), range(ORDERS)))
        assert answers == [NEW] * ORDERS
        gate.open("cup", [1])
        with gate.transaction(**(claim("one more") | {"sku": "cup"})) as connection:
            assert connection.execute(text("SELECT 1")).scalar_one() == 1
        assert (gate.confirmed_units("mug"), gate.confirmed_units("cup")) == (ORDERS, 1)
        returns = [Return("mug", f"o-{number}", 1, f"r-{number}") for number in range(ORDERS)]
        with ThreadPoolExecutor(THREADS) as threads:
            found = list(threads.map(gate.returns.begin, returns))
            list(threads.map(lambda one: gate.returns.finish(one, 1, 1), returns))
        assert found == [ReturnStored(1, "begun", None, 0)] * ORDERS
        assert (gate.confirmed_units("mug"), gate.returns.begun("mug")) == (0, ())


def test_dead_letters_of_two_processes_share_the_connection_of_a_pooler(
    start_pgbouncer: Callable[..., PgBouncer], postgres_database: str
) -> None:
    """Each prepares its statements under the same names, if it prepares any."""
    url = make_url(start_pgbouncer(pool_size=1).in_front_of(postgres_database)).set(drivername="postgresql+psycopg")
    stores = [SqlDeadLetters(url.render_as_string(hide_password=False)) for _ in range(2)]
    for number in range(20):
        stores[number % 2].record(Work("ship", work_id=str(number)))
    assert len(list(stores[0].pending())) == 20
    for store in stores:
        store.close()

"""Row locks: what is refused before anything is sent, and how the table comes to be."""

from collections.abc import Callable
from functools import partial
from threading import Barrier
from typing import Any, Final

import pytest
from sqlalchemy import Connection, create_engine

from segmented.errors import AcquireTimeout, InvalidInput, StoreRefused, StoreUnavailable
from segmented.locks.sql_row import AsyncSqlRowLock, SqlRowLock
from segmented.locks.sql_table import NAME_BYTES_MAX, create_lock_table
from tests.support.servers.sql_locking import SqlSide, make_engine, sent_by

NO_TRANSACTION: Final = "a row lock lasts as long as a transaction, and this connection has not begun one"
AUTOCOMMIT: Final = "a row lock lasts as long as a transaction, and this connection is in autocommit"


def every_way(connection: Connection) -> list[Callable[[], object]]:
    lock = SqlRowLock(connection, "ticket")
    return [
        lock.acquire,
        partial(lock.acquire, timeout=0),
        lock.try_acquire,
        partial(SqlRowLock.try_acquire_any, connection, ["ticket"]),
    ]


# --- a transaction is needed ---


def test_a_connection_without_a_transaction_is_refused_before_anything_is_sent(plain_sql_side: SqlSide) -> None:
    with plain_sql_side.engine.connect() as connection:
        sent = sent_by(connection)
        for acquire in every_way(connection):
            with pytest.raises(InvalidInput, match=NO_TRANSACTION):
                acquire()
        assert sent == []


@pytest.mark.parametrize("level", ["engine", "connection"])
def test_autocommit_is_refused_before_anything_is_sent(plain_sql_side: SqlSide, level: str) -> None:
    engine = plain_sql_side.direct if level == "engine" else plain_sql_side.engine
    with engine.connect() as connection:
        if level == "connection":
            connection.execution_options(isolation_level="AUTOCOMMIT")
        with connection.begin():
            sent = sent_by(connection)
            for acquire in every_way(connection):
                with pytest.raises(InvalidInput, match=AUTOCOMMIT):
                    acquire()
            assert sent == []


# --- databases without row locks ---


def test_sqlite_is_refused_in_one_sentence(sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    sentence = "row locks need PostgreSQL, MariaDB or MySQL; sqlite cannot lock a row"
    with pytest.raises(InvalidInput, match=sentence):
        create_lock_table(engine)
    with engine.begin() as connection, pytest.raises(InvalidInput, match=sentence):
        SqlRowLock(connection, "ticket").try_acquire()
    engine.dispose()


# --- names and waits ---

BAD_NAMES: Final[list[tuple[Any, str]]] = [
    ("", "a row lock needs a name"),
    (b"ticket", "the name of a row lock is a text, not bytes"),
    (None, "the name of a row lock is a text, not NoneType"),
    ("a\0b", "cannot be printed"),
    ("\udce4", "cannot be printed"),
    ("ä" * (NAME_BYTES_MAX // 2 + 1), "the name of a row lock has 1026 bytes in UTF-8; the maximum is 1024"),
]


@pytest.mark.parametrize(("name", "words"), BAD_NAMES)
def test_what_is_no_name_is_refused_with_the_handle(postgres_sql_side: SqlSide, name: Any, words: str) -> None:  # noqa: ANN401  # bad on purpose
    side = postgres_sql_side
    with side.engine.connect() as connection:
        for make in (
            lambda: SqlRowLock(connection, name),
            lambda: AsyncSqlRowLock(side.async_engine.connect(), name),
            lambda: SqlRowLock.try_acquire_any(connection, ["fine", name]),
            lambda: create_lock_table(side.engine, names=["fine", name]),
        ):
            with pytest.raises(InvalidInput, match=words):
                make()
    assert side.admin("SELECT count(*) FROM segmented_locks") == [(0,)]


def test_a_waiting_time_may_be_tiny_or_without_end(sql_side: SqlSide) -> None:
    ours, theirs = sql_side.open(), sql_side.open()
    for timeout in (1e-9, 1e12, float("inf"), None):
        assert ours.acquire("ticket", timeout=timeout).name == "ticket"
    for timeout in (1e-9, 0.0004):
        with pytest.raises(AcquireTimeout):
            theirs.acquire("ticket", timeout=timeout)
    waiting = sql_side.start(lambda: theirs.acquire("ticket", timeout=1e12))
    sql_side.wait_for_waiters(1)
    ours.commit()
    assert waiting.result(60).name == "ticket"


def test_names_are_compared_byte_by_byte_up_to_the_longest(sql_side: SqlSide) -> None:
    names = [
        "a",
        "A",
        "ä",
        "a ",
        " a",
        "%",
        "it's",
        'say "a"',
        "a:b",
        ":name",
        "\\",
        "ä" * (NAME_BYTES_MAX // 2),
        "a" * NAME_BYTES_MAX,
    ]
    session, other = sql_side.open(), sql_side.open()
    assert [session.acquire(name).name for name in names] == names
    assert [name for name in names if other.try_acquire(name) is not None] == []
    assert other.try_acquire_any(names) is None
    session.commit()
    assert [held and held.name for held in map(other.try_acquire, names)] == names


# --- the table ---


def test_the_table_can_be_made_by_many_at_once_and_again(sql_side: SqlSide) -> None:
    sql_side.admin("DROP TABLE segmented_locks")
    together = Barrier(6)

    def make(number: int) -> None:
        together.wait(60)
        sql_side.create(names=["shared", f"own {number}"])

    for call in [sql_side.start(partial(make, number)) for number in range(6)]:
        call.result(60)
    sql_side.create(names=["shared"])
    assert sql_side.admin("SELECT count(*), max(fence) FROM segmented_locks") == [(7, 0)]
    assert sql_side.open().acquire("shared").fencing_token > 0


def test_a_missing_table_is_named_together_with_what_makes_it(sql_side: SqlSide) -> None:
    sql_side.admin("DROP TABLE segmented_locks")
    sentence = r"the table segmented_locks is missing; make it with create_lock_table\(engine\)"
    session = sql_side.open()
    for acquire in (session.acquire, session.try_acquire):
        with pytest.raises(StoreRefused, match=sentence):
            acquire("ticket")
        session.rollback()


def test_a_server_that_is_gone_is_unavailable_not_refused(postgres_url: str) -> None:
    engine = make_engine(postgres_url.replace("5432", "1").replace("host=", "host=/nowhere"))
    with pytest.raises(StoreUnavailable, match="the table of the row locks"):
        create_lock_table(engine)
    engine.dispose()

"""Row locks: what holds on every database, in both colours, and through a pooler."""

import time
from collections.abc import Callable
from functools import partial
from threading import Barrier
from typing import Any, Final

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from segmented.errors import AcquireTimeout, InvalidInput, StoreRefused, StoreUnavailable, TransactionConflict
from segmented.locks.other_servers.sql_row import (
    NAME_BYTES_MAX,
    AsyncSqlRowLock,
    HeldRow,
    SqlRowLock,
    create_lock_table,
)
from tests.support.servers.nodes import eventually
from tests.support.servers.sql_locking import Session, SqlSide, make_engine, sent_by

MICROSECOND_OF_2026 = 1_767_225_600_000_000
SOON = 60.0


def stored_fence(side: SqlSide, name: str) -> int:
    found: int = side.admin("SELECT fence FROM segmented_locks WHERE name = :name", {"name": name})[0][0]
    return found


# --- held until the transaction ends ---


def test_one_transaction_holds_a_name_until_it_commits(sql_side: SqlSide) -> None:
    ours, theirs = sql_side.open(), sql_side.open()
    held = ours.acquire("ticket")
    assert held == HeldRow("ticket", held.fencing_token)
    assert theirs.try_acquire("ticket") is None
    assert theirs.try_acquire("other") is not None
    ours.commit()
    assert theirs.try_acquire("ticket") is not None


def test_a_lost_connection_frees_the_name_and_tells_the_holder_at_its_next_statement(sql_side: SqlSide) -> None:
    ours, theirs = sql_side.open(), sql_side.open()
    held = ours.acquire("ticket")
    ours.run("CREATE TEMPORARY TABLE noted (word VARCHAR(9))")
    sql_side.kill(sql_side.backend(ours))
    next_held = theirs.acquire("ticket")
    assert next_held.fencing_token > held.fencing_token
    with pytest.raises(SQLAlchemyError):
        ours.run("INSERT INTO noted VALUES ('late')")
    with pytest.raises(SQLAlchemyError):
        ours.commit()


def test_a_free_name_costs_two_statements_on_postgresql_and_three_on_mariadb(plain_sql_side: SqlSide) -> None:
    session = plain_sql_side.open()
    session.acquire("ticket")
    session.commit()
    assert isinstance(session, Session)
    sent = sent_by(session.connection)
    session.acquire("ticket")
    assert len(sent) == (3 if plain_sql_side.flavour.is_mariadb else 2)


# --- waiting ---


@pytest.mark.parametrize("is_new", [False, True])
def test_who_waits_gets_the_name_when_the_holder_rolls_back(sql_side: SqlSide, *, is_new: bool) -> None:
    sql_side.create(names=[] if is_new else ["ticket"])
    ours, theirs = sql_side.open(), sql_side.open()
    held = ours.acquire("ticket")
    waiting = sql_side.start(lambda: theirs.acquire("ticket", timeout=None))
    sql_side.wait_for_waiters(1)
    ours.rollback()
    assert waiting.result(SOON).fencing_token > held.fencing_token


@pytest.mark.parametrize("is_new", [False, True])
def test_a_wait_ends_at_its_deadline_and_leaves_the_transaction_as_it_was(sql_side: SqlSide, *, is_new: bool) -> None:
    sql_side.create(names=[] if is_new else ["ticket"])
    sql_side.admin("CREATE TABLE notes (word VARCHAR(9))")
    ours, theirs = sql_side.open(), sql_side.open()
    ours.acquire("ticket")
    theirs.run("INSERT INTO notes VALUES ('before')")
    began = time.monotonic()
    with pytest.raises(AcquireTimeout, match=r"lock 'ticket' was not free within 0\.3 s") as caught:
        theirs.acquire("ticket", timeout=0.3)
    assert time.monotonic() - began >= 0.3
    assert (caught.value.name, caught.value.timeout) == ("ticket", 0.3)
    theirs.run("INSERT INTO notes VALUES ('after')")
    theirs.commit()
    assert sorted(sql_side.admin("SELECT word FROM notes")) == [("after",), ("before",)]
    ours.commit()
    assert theirs.acquire("ticket").name == "ticket"


# --- one of several ---


def test_one_of_several_names_skips_those_that_are_held(sql_side: SqlSide) -> None:
    names = ["a", "b", "c"]
    sessions = [sql_side.open() for _ in range(4)]
    found = [session.try_acquire_any(names) for session in sessions]
    assert [None if held is None else held.name for held in found].count(None) == 1
    assert sorted(held.name for held in found[:3] if held is not None) == names
    assert found[3] is None
    sessions[1].commit()
    again = sessions[3].try_acquire_any(names)
    assert again is not None
    assert again.name == (found[1] and found[1].name)


# --- fencing tokens ---


def test_tokens_are_microseconds_and_grow_with_every_holder(sql_side: SqlSide) -> None:
    session = sql_side.open()
    tokens = []
    for _ in range(5):
        tokens.append(session.acquire("ticket").fencing_token)
        session.commit()
        assert stored_fence(sql_side, "ticket") == tokens[-1]
    assert tokens == sorted(set(tokens))
    assert tokens[0] > MICROSECOND_OF_2026


def test_tokens_grow_also_when_the_databases_clock_is_behind_the_last_one(sql_side: SqlSide) -> None:
    sql_side.create(names=["ticket"])
    future = 9 * 10**15
    sql_side.admin("UPDATE segmented_locks SET fence = :future", {"future": future})
    session = sql_side.open()
    tokens = []
    for _ in range(3):
        tokens.append(session.acquire("ticket").fencing_token)
        session.commit()
    assert tokens == [future + 1, future + 2, future + 3]


# --- conflicts ---


def test_two_names_in_opposite_order_give_one_of_the_two_a_conflict_and_roll_it_back(sql_side: SqlSide) -> None:
    sql_side.create(names=["a", "b"])
    sql_side.admin("CREATE TABLE notes (word VARCHAR(9))")
    sessions = [sql_side.open(), sql_side.open()]
    for session, name in zip(sessions, ("a", "b"), strict=True):
        if not sql_side.flavour.is_mariadb:
            session.run("SET LOCAL deadlock_timeout = '100ms'")
        session.acquire(name)
        session.run("INSERT INTO notes VALUES (:name)", {"name": name})
    calls = [sql_side.start(partial(session.acquire, name)) for session, name in zip(sessions, ("b", "a"), strict=True)]
    failures = [call.exception(SOON) for call in calls]
    (loser,) = [number for number, failure in enumerate(failures) if failure is not None]
    assert isinstance(failures[loser], TransactionConflict)
    name = ("b", "a")[loser]
    assert str(failures[loser]).startswith(
        f"lock '{name}': the transaction is rolled back, run it again from its start"
    )
    sessions[1 - loser].commit()
    sessions[loser].rollback()
    assert sql_side.admin("SELECT word FROM notes") == [(name,)]


# --- many at once ---

WORKERS = 8
TURNS = 10


def count_up(side: SqlSide, tokens: list[int]) -> None:
    session = side.open()
    for _ in range(TURNS):
        held = session.acquire("counter")
        number = session.value("SELECT number FROM notes")
        session.run("UPDATE notes SET number = :number", {"number": number + 1})
        tokens.append(held.fencing_token)
        session.commit()


def test_many_who_read_and_then_write_under_the_lock_lose_nothing(sql_side: SqlSide) -> None:
    sql_side.admin("CREATE TABLE notes (number INTEGER)")
    sql_side.admin("INSERT INTO notes VALUES (0)")
    tokens: list[int] = []
    workers = [sql_side.start(partial(count_up, sql_side, tokens)) for _ in range(WORKERS)]
    for worker in workers:
        worker.result(2 * SOON)
    assert sql_side.admin("SELECT number FROM notes") == [(WORKERS * TURNS,)]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == WORKERS * TURNS


# Row locks: the traps of each kind of database, and what works the same on all.


# --- the rows are found by the primary key ---
# --- PostgreSQL ---
# --- a savepoint, and a snapshot, older than the lock ---
def test_a_snapshot_older_than_the_last_holder_is_a_conflict_on_postgresql(postgres_sql_side: SqlSide) -> None:
    side = postgres_sql_side
    side.create(names=["ticket"])
    with side.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        ours, theirs = Session(connection), side.open()
        ours.run("SELECT count(*) FROM segmented_locks")
        theirs.acquire("ticket")
        theirs.commit()
        with pytest.raises(TransactionConflict, match="could not serialize access due to concurrent update"):
            ours.acquire("ticket")
        assert not connection.in_transaction()
        assert Session(connection).acquire("ticket").name == "ticket"


def test_a_snapshot_older_than_the_last_holder_conflicts_on_mariadb_if_told_to(mariadb_sql_side: SqlSide) -> None:
    side = mariadb_sql_side
    side.create(names=["ticket"])
    ours, theirs = side.open(), side.open()
    ours.run("SET SESSION innodb_snapshot_isolation = ON")
    ours.run("SELECT count(*) FROM segmented_locks")
    theirs.acquire("ticket")
    theirs.commit()
    with pytest.raises(TransactionConflict, match="Record has changed since last read"):
        ours.acquire("ticket")


# --- MariaDB ---
def test_a_pool_of_one_connection_is_enough_for_a_new_name(mariadb_url: str, mariadb_sql_side: SqlSide) -> None:
    assert mariadb_sql_side.admin("SELECT count(*) FROM segmented_locks") == [(0,)]
    engine = make_engine(mariadb_url, pool_size=1)
    with engine.begin() as connection:
        assert SqlRowLock(connection, "ticket").acquire().name == "ticket"
        assert SqlRowLock(connection, "other").try_acquire() is not None
    engine.dispose()


def test_a_row_that_somebody_deleted_is_said_to_be_gone_and_made_again(mariadb_sql_side: SqlSide) -> None:
    side = mariadb_sql_side
    session = side.open()
    session.acquire("ticket")
    session.commit()
    for take in (session.acquire, session.try_acquire):
        side.admin("DELETE FROM segmented_locks")
        with pytest.raises(StoreRefused, match="the row of lock 'ticket' was deleted"):
            take("ticket")
        session.rollback()
        assert take("ticket") is not None
        session.commit()


# --- cancelled waits ---
def test_a_cancelled_wait_loses_its_transaction_and_keeps_nobody_waiting(async_sql_side: SqlSide) -> None:
    side = async_sql_side
    side.create(names=["ticket"])
    side.admin("CREATE TABLE notes (word VARCHAR(9))")
    holder, third = side.open(), side.open()
    holder.acquire("ticket")

    async def write_and_wait() -> None:
        async with side.async_engine.begin() as connection:
            await connection.execute(text("INSERT INTO notes VALUES ('gone')"))
            await AsyncSqlRowLock(connection, "ticket").acquire()

    waiting = side.begin(write_and_wait())
    side.wait_for_waiters(1)
    assert waiting.cancel()
    holder.commit()
    assert third.acquire("ticket").name == "ticket"
    eventually(lambda: not waiting.running(), "the cancelled task has ended")
    assert side.admin("SELECT word FROM notes") == []


# Row locks: what is refused before anything is sent, and how the table comes to be.


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

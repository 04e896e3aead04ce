"""Row locks: what each kind of database needed a way around, and what it does all the same."""

import pytest
from sqlalchemy import text

from segmented.errors import StoreRefused, TransactionConflict
from segmented.locks.sql_row import AsyncSqlRowLock, SqlRowLock
from tests.support.servers.nodes import eventually
from tests.support.servers.sql_locking import Session, SqlSide, make_engine

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

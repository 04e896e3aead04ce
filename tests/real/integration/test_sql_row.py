"""Row locks: what holds on every database, in both colours, and through a pooler."""

import time
from functools import partial

import pytest
from sqlalchemy.exc import SQLAlchemyError

from segmented.errors import AcquireTimeout, TransactionConflict
from segmented.locks.sql_row import HeldRow
from tests.support.servers.sql_locking import Session, SqlSide, sent_by

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

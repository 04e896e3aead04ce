"""Row locks in PostgreSQL's SQL.

A failed statement would abort the caller's transaction. A try therefore skips locked rows, which is not an error, and a
wait runs in a savepoint, which also resets its time-outs if it fails.

`lock_timeout` alone does not keep a deadline: it begins again with each lock that a statement waits for, and a row's
queue has two (a place in the queue, then the holder). `statement_timeout` covers all of them.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BindParameter, Connection, bindparam, text
from sqlalchemy.exc import DBAPIError

from segmented.locks.sql_edge import code_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from segmented.clock import Clock

LOCK_TIMEOUT: Final = "55P03"
CANCELLED: Final = "57014"
SECONDS_MAX: Final = 2_000_000.0
"""Longest wait with a time-out, since a time-out is limited to 24 days; a longer wait has none."""
NO_TIMEOUT: Final = "0"


NAMES: Final[BindParameter[Any]] = bindparam("names", expanding=True)

LOCK: Final = text("SELECT name FROM segmented_locks WHERE name = :name FOR UPDATE")
LOCK_FREE: Final = text(
    "SELECT name FROM segmented_locks WHERE name IN :names LIMIT 1 FOR UPDATE SKIP LOCKED"
).bindparams(NAMES)
PRESENT: Final = text("SELECT name FROM segmented_locks WHERE name IN :names").bindparams(NAMES)
INSERT: Final = text("INSERT INTO segmented_locks (name) VALUES (:name) ON CONFLICT DO NOTHING")
RAISE_FENCE: Final = text(
    "UPDATE segmented_locks "
    "SET fence = GREATEST(fence + 1, (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint) "
    "WHERE name = :name RETURNING fence"
)
TAKE_TURNS: Final = text("SELECT pg_advisory_xact_lock(:lock)")
SET_TIMEOUTS: Final = text(
    "SELECT current_setting('lock_timeout'), current_setting('statement_timeout'), "
    "set_config('lock_timeout', :lock, true), "
    "set_config('statement_timeout', coalesce(:statement, current_setting('statement_timeout')), true)"
)


class PostgresRows:
    """The rows of the lock table in PostgreSQL."""

    def begin_creating(self, connection: Connection, lock: int) -> None:
        """Wait for an advisory lock: CREATE TABLE IF NOT EXISTS fails if two run at once."""
        connection.execute(TAKE_TURNS, {"lock": lock})

    def insert_missing(self, connection: Connection, names: Sequence[str]) -> None:
        """Insert the missing rows in a fixed order, so that two concurrent calls cannot deadlock."""
        for name in sorted(set(names) - _present(connection, names)):
            connection.execute(INSERT, {"name": name})

    def try_lock(self, connection: Connection, names: Sequence[str]) -> str | None:
        """Lock a free row; otherwise insert, and so lock, a missing one."""
        found: str | None = connection.execute(LOCK_FREE, {"names": names}).scalar()
        if found is not None:
            return found
        present = _present(connection, names)
        missing = (name for name in names if name not in present)
        return next((name for name in missing if _inserted_at_once(connection, name)), None)

    def wait_for(self, connection: Connection, name: str, *, deadline: float, clock: Clock) -> bool:
        """Wait in the row's queue, or for the transaction that is inserting the row."""
        while (seconds := deadline - clock.now()) > 0:
            try:
                if _locked_within(connection, name, seconds):
                    return True
            except DBAPIError as error:
                is_late = clock.now() >= deadline
                if code_of(error) not in {LOCK_TIMEOUT, CANCELLED} or (code_of(error) == CANCELLED and not is_late):
                    raise
        return False

    def raise_fence(self, connection: Connection, name: str) -> int:
        """Raise the fence in a separate statement, which reads the clock while the row is ours."""
        return int(connection.execute(RAISE_FENCE, {"name": name}).scalar_one())


def _present(connection: Connection, names: Sequence[str]) -> set[str]:
    return set(connection.execute(PRESENT, {"names": names}).scalars())


def _locked_within(connection: Connection, name: str, seconds: float) -> bool:
    """Lock the row; return False if another transaction inserted it and has just ended, so that it is lockable now."""
    limit = NO_TIMEOUT if seconds > SECONDS_MAX else str(ceil(seconds * 1000))
    with connection.begin_nested(), _timeouts(connection, lock=limit, statement=limit):
        return (
            connection.execute(LOCK, {"name": name}).first() is not None
            or connection.execute(INSERT, {"name": name}).rowcount == 1
        )


def _inserted_at_once(connection: Connection, name: str) -> bool:
    """Insert a row, which no other sees or locks before our commit; give up if another transaction is inserting it."""
    try:
        with connection.begin_nested(), _timeouts(connection, lock="1", statement=None):
            return connection.execute(INSERT, {"name": name}).rowcount == 1
    except DBAPIError as error:
        if code_of(error) != LOCK_TIMEOUT:
            raise
        return False


@contextmanager
def _timeouts(connection: Connection, *, lock: str, statement: str | None) -> Iterator[None]:
    """Set the time-outs (milliseconds) for the body; if it fails, its savepoint resets them."""
    before = connection.execute(SET_TIMEOUTS, {"lock": lock, "statement": statement}).one()
    yield
    connection.execute(SET_TIMEOUTS, {"lock": before[0], "statement": before[1]})

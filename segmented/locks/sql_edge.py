"""The edge to the database drivers of the row locks: the only place that translates their errors into ours."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    PendingRollbackError,
    SQLAlchemyError,
    TimeoutError as PoolTimeoutError,
)

from segmented.errors import StoreRefused, StoreUnavailable, TransactionConflict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.pool import ConnectionPoolEntry

TABLE_NAME: Final = "segmented_locks"
LOCK_TABLE: Final = f"{TABLE_NAME} by create_lock_table(engine)"

CONFLICTS: Final = frozenset(
    {
        "40P01",  # PostgreSQL: deadlock
        "40001",  # PostgreSQL: a snapshot older than the row to lock
        1213,  # MySQL, MariaDB: deadlock
        1020,  # MariaDB with innodb_snapshot_isolation: a snapshot older than the row to lock
    }
)
TABLE_MISSING: Final = frozenset({"42P01", 1146})
ABORTED: Final = "25P02"
"""PostgreSQL's code for a statement in a transaction that an earlier error has aborted."""
MARK: Final = "segmented_begun"
BROKEN: Final = (
    "a failed statement, or a commit or rollback, ended the transaction too early; let the error of a statement leave "
    "the transaction's block, or run a statement that may fail in connection.begin_nested()"
)
LOST_EARLIER: Final = "8s2b"
"""SQLAlchemy's code for a statement on a connection that an earlier statement lost, whose error was handled."""


def is_in_autocommit(connection: Connection) -> bool:
    """Return whether each statement of a connection is its own transaction, or the connection is gone."""
    driver_connection: Any = connection.connection.dbapi_connection
    if driver_connection is None:
        return True
    if hasattr(connection.dialect, "detect_autocommit_setting"):  # SQLAlchemy 2.1
        return connection.dialect.detect_autocommit_setting(driver_connection)
    if connection.dialect.name == "sqlite":
        return driver_connection.isolation_level is None
    if hasattr(driver_connection, "get_autocommit"):
        return bool(driver_connection.get_autocommit())
    return driver_connection.autocommit is True


def code_of(error: DBAPIError) -> str | int | None:
    """Return the SQLSTATE (PostgreSQL) or the number (MySQL, MariaDB) of the driver's error."""
    original = error.orig
    first = original.args[0] if original is not None and original.args else None
    if isinstance(first, int):
        return first
    if isinstance(first, dict):  # pg8000: the server's fields by their letters
        return str(first["C"]) if "C" in first else None
    code = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    return None if code is None else str(code)


def said(error: BaseException) -> str:
    """Return the driver's message in one line, without the statement or its values."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    words: object = original
    match original.args:
        case (int(), text, *_):
            words = text
        case ({"M": text}, *_):  # pg8000, as above
            words = text
    first = str(words).partition("Is the server running")[0]  # a question in the middle of our sentence
    return " ".join(first.split()).rstrip(".")


@contextmanager
def translated(what: str, connection: Connection | None = None, *, table: str = LOCK_TABLE) -> Iterator[None]:
    """Translate the drivers' errors into ours; `what` names the request. A lost race ends `connection`'s transaction.

    `table` names the table and what creates it, for the error if it is missing.
    """
    try:
        yield
    except DBAPIError as error:
        if error.connection_invalidated or isinstance(error, InterfaceError):
            message = f"{what}: the connection is lost, and with it the transaction and its locks: {said(error)}"
            raise StoreUnavailable(message) from error
        if error.statement is None:  # it failed before a statement was sent
            raise StoreUnavailable(f"{what}: the database cannot be reached: {said(error)}") from error
        if code_of(error) in CONFLICTS:
            roll_back(connection)
            raise TransactionConflict(what, said(error)) from error
        if code_of(error) == ABORTED:
            raise StoreRefused(f"{what}: nothing is stored: {BROKEN}") from error
        if code_of(error) in TABLE_MISSING:
            name, _, maker = table.partition(" by ")
            raise StoreRefused(f"{what}: the table {name} is missing; make it with {maker}") from error
        raise StoreRefused(f"{what}: the database refused: {said(error)}") from error
    except PoolTimeoutError as error:
        message = f"{what}: no connection of the pool was free in time: allow more of them, or a longer pool_timeout"
        raise StoreUnavailable(message) from error
    except SQLAlchemyError as error:
        if isinstance(error, PendingRollbackError) and error.code == LOST_EARLIER:
            message = f"{what}: the connection is lost, and with it the transaction and its locks: {said(error)}"
            raise StoreUnavailable(message) from error
        raise StoreRefused(f"{what}: the connection cannot be used: {said(error)}") from error


def mark_begun(connection: Connection) -> None:
    """Mark the open transaction, for `is_unbroken`."""
    connection.exec_driver_sql(f"SAVEPOINT {MARK}")


def is_unbroken(connection: Connection) -> bool:
    """Return whether the marked transaction is still open and can commit. Call it once, right before the commit.

    A transaction can end while the caller's code believes that it goes on: PostgreSQL aborts it at the first failed
    statement and answers the COMMIT with a rollback, without an error; MariaDB rolls it back at a deadlock, SQLite at
    INSERT OR ROLLBACK, and later statements are stored without the earlier ones. Its savepoints end with it.
    """
    try:
        connection.exec_driver_sql(f"RELEASE SAVEPOINT {MARK}")
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        return False
    return True


def roll_back(connection: Connection | None) -> None:
    """Roll the whole transaction back.

    The database has already done so (MySQL, MariaDB), or waits for it (PostgreSQL, where the other side of a deadlock
    may still need our locks). Without this, SQLAlchemy would consider the transaction alive, and the caller's next
    statements would be committed without the earlier ones.
    """
    transaction = connection.get_transaction() if connection is not None else None
    if transaction is not None:
        with suppress(SQLAlchemyError):  # a connection lost meanwhile has no transaction any more
            transaction.rollback()


def close_engine(engine: Engine) -> None:
    """Close the engine's connections for good: the unused ones now, each other one when it is returned."""
    if not event.contains(engine, "checkin", _close):
        event.listen(engine, "checkin", _close)
    engine.dispose()


def _close(_connection: object, entry: ConnectionPoolEntry) -> None:
    entry.invalidate()

"""The boundary to the drivers: translates their errors, and decides which are worth a second attempt."""

from __future__ import annotations

import re
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError as PoolTimeoutError,
)

from segmented.errors import DatabaseUnavailable, InvalidInput, StoreRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLOCK_OR_SERIALIZATION: Final = frozenset({"40001", "40P01"})
READ_ONLY: Final = "25006"
"""Error code of a standby: another server, or this one later, can do it."""
LACKS_TABLE: Final = re.compile(r"no such table|relation .* does not exist|Table .* doesn't exist")
ANSWERED: Final = "FATAL"
"""The first word of a PostgreSQL server's refusal; errors of the driver itself lack it."""
MISSAID: Final = re.compile(r"invalid (connection option|\w+ value|port number)|certificate|does not support SSL")
"""Errors of the driver about an address, or about a server that answered and is not the wanted one."""
PASSING: Final = (
    *("starting up", "shutting down", "not yet accepting", "in recovery"),
    *("too many", "connection slots", "database is locked"),
)
SQLITE_STATEMENT_WRONG: Final = frozenset({"SQLITE_ERROR", "SQLITE_MISUSE", "SQLITE_RANGE"})


def reason(error: BaseException) -> str:
    """Return the driver's message, in one line and without the statement or its values."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = str(original).partition("Is the server running")[0]  # this part is a question and does not fit our sentence
    return " ".join(said.split()).rstrip(".")


def is_away(error: Exception) -> bool:
    """Return whether a connection failed since no server answered, or one that accepts none at the moment."""
    if not isinstance(error, DBAPIError) or error.orig is None:
        return False
    said = str(error.orig)
    is_passing = any(word in said for word in PASSING)
    is_unanswered = type(error.orig).__module__.startswith("psycopg") and ANSWERED not in said
    return is_passing or (is_unanswered and not MISSAID.search(said))


def is_worth_repeating(error: DBAPIError) -> bool:
    """Return whether the connection was lost or a conflict aborted the transaction; for repeatable statements."""
    return error.connection_invalidated or is_conflict(error)


def is_conflict(error: DBAPIError) -> bool:
    """Return whether the database aborted the transaction because of a concurrent one."""
    return getattr(error.orig, "sqlstate", None) in DEADLOCK_OR_SERIALIZATION


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Translate the drivers' errors."""
    try:
        yield
    except UnicodeEncodeError as error:
        message = f"the text {error.object!r} cannot be stored: it is not valid Unicode"
        raise InvalidInput(message) from error
    except OverflowError as error:
        message = f"{where} cannot store this value: {error}"
        raise InvalidInput(message) from error
    except PoolTimeoutError as error:
        message = f"no connection to {where} was free in time; its pool is too small for the threads that share it"
        raise DatabaseUnavailable(message) from error
    except DataError as error:
        message = f"{where} cannot store this value: {reason(error)}"
        raise InvalidInput(message) from error
    except (OperationalError, InterfaceError) as error:
        if _is_statement_wrong(error):
            raise StoreRefused(_refused(where, error)) from error
        message = f"{where} did not answer: {reason(error)}"
        raise DatabaseUnavailable(message) from error
    except SQLAlchemyError as error:
        if getattr(getattr(error, "orig", None), "sqlstate", None) == READ_ONLY:
            message = f"{where} cannot be written to now: {reason(error)}"
            raise DatabaseUnavailable(message) from error
        raise StoreRefused(_refused(where, error)) from error


def _refused(where: str, error: BaseException) -> str:
    said = reason(error)
    cure = "; create its tables with 'segmented orders migrate --database URL'" if LACKS_TABLE.search(said) else ""
    return f"{where} refused the operation: {said}{cure}"


def _is_statement_wrong(error: DBAPIError) -> bool:
    """Return whether SQLite reports a missing table; other databases have an error class for that."""
    return isinstance(error.orig, sqlite3.Error) and error.orig.sqlite_errorname in SQLITE_STATEMENT_WRONG

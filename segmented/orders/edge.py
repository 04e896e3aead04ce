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
from segmented.locks import sql_edge
from segmented.locks.sql_edge import code_of, said

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFLICTS: Final = sql_edge.CONFLICTS | {1205}
"""1205: a lock's time-out of MariaDB and MySQL, which is how they end a deadlock if they do not look for them."""
READ_ONLY: Final = frozenset({"25006", 1290, 1792, 1836})
"""Error codes of a standby: another server, or this one later, can do it."""
OF_CLIENT: Final = range(2_000, 3_000)
"""Errors of the clients of MariaDB and MySQL: no connection, or a lost one."""
PASSING_CODES: Final = frozenset({1020, 1040, 1041, 1047, 1053, 1203, 1205, 1213, 1226, 1317, 1927, 1969, 3024, 4031})
"""Errors of MariaDB and MySQL: too many connections, a shutdown, an ended wait, or a conflict."""
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


def is_away(error: Exception) -> bool:
    """Return whether a connection failed since no server answered, or one that accepts none at the moment."""
    if not isinstance(error, DBAPIError) or error.orig is None:
        return False
    words, code = str(error.orig), code_of(error)
    is_passing = any(word in words for word in PASSING) or code in PASSING_CODES
    is_unanswered = type(error.orig).__module__.startswith("psycopg") and ANSWERED not in words
    return is_passing or ((is_unanswered or code in OF_CLIENT) and not MISSAID.search(words))


def is_worth_repeating(error: DBAPIError) -> bool:
    """Return whether the connection was lost or a conflict aborted the transaction; for repeatable statements."""
    return error.connection_invalidated or is_conflict(error)


def is_conflict(error: DBAPIError) -> bool:
    """Return whether the database aborted the transaction because of a concurrent one."""
    return code_of(error) in CONFLICTS


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Translate the drivers' errors."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the text {error.object!r} cannot be stored: it is not valid Unicode") from error
    except OverflowError as error:
        raise InvalidInput(f"{where} cannot store this value: {error}") from error
    except PoolTimeoutError as error:
        message = f"no connection to {where} was free in time; its pool is too small for the threads that share it"
        raise DatabaseUnavailable(message) from error
    except DataError as error:
        raise InvalidInput(f"{where} cannot store this value: {said(error)}") from error
    except (OperationalError, InterfaceError) as error:
        if _is_statement_wrong(error):
            raise StoreRefused(_refused(where, error)) from error
        answer = "cannot be written to now" if code_of(error) in READ_ONLY else "did not answer"
        raise DatabaseUnavailable(f"{where} {answer}: {said(error)}") from error
    except SQLAlchemyError as error:
        if isinstance(error, DBAPIError) and code_of(error) in READ_ONLY:
            raise DatabaseUnavailable(f"{where} cannot be written to now: {said(error)}") from error
        raise StoreRefused(_refused(where, error)) from error


def _refused(where: str, error: BaseException) -> str:
    words = said(error)
    cure = "; create its tables with 'segmented orders migrate --database URL'" if LACKS_TABLE.search(words) else ""
    return f"{where} refused the operation: {words}{cure}"


def _is_statement_wrong(error: DBAPIError) -> bool:
    """Return whether the statement is at fault, by its code: these drivers have no class for all of such errors."""
    if isinstance(error.orig, sqlite3.Error):
        return error.orig.sqlite_errorname in SQLITE_STATEMENT_WRONG
    code = code_of(error)
    is_known = code in PASSING_CODES | READ_ONLY or code in OF_CLIENT
    return isinstance(code, int) and code > 0 and not is_known and error.statement is not None

"""The edge to the drivers: the one place where their errors become ours, and what is worth a second attempt."""

from __future__ import annotations

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
"""What a server says that is a standby still, or for now: another one can do it, or this one later."""
SQLITE_STATEMENT_WRONG: Final = frozenset({"SQLITE_ERROR", "SQLITE_MISUSE", "SQLITE_RANGE"})


def reason(error: BaseException) -> str:
    """Return what the driver said, in one line and without the statement or its values."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = str(original).partition("Is the server running")[0]  # a question in the middle of our sentence
    return " ".join(said.split()).rstrip(".")


def is_worth_repeating(error: DBAPIError) -> bool:
    """Was the connection lost, or the transaction chosen to give way? For statements that may run twice."""
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) in DEADLOCK_OR_SERIALIZATION


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn the drivers' errors into ours."""
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
            message = f"{where} refused the operation: {reason(error)}"
            raise StoreRefused(message) from error
        message = f"{where} did not answer: {reason(error)}"
        raise DatabaseUnavailable(message) from error
    except SQLAlchemyError as error:
        if getattr(getattr(error, "orig", None), "sqlstate", None) == READ_ONLY:
            message = f"{where} cannot be written to now: {reason(error)}"
            raise DatabaseUnavailable(message) from error
        message = f"{where} refused the operation: {reason(error)}"
        raise StoreRefused(message) from error


def _is_statement_wrong(error: DBAPIError) -> bool:
    """Is it SQLite's way to say that a table is missing? Other databases have a class of errors for that."""
    return isinstance(error.orig, sqlite3.Error) and error.orig.sqlite_errorname in SQLITE_STATEMENT_WRONG

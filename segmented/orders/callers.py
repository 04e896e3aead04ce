"""The caller's own transaction: SQLAlchemy's, Django's or psycopg's.

The gate's statements run on a connection of SQLAlchemy. For Django and psycopg this is one around the driver's
connection that the caller has, which is neither set up nor committed, rolled back or closed here.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy import URL, Connection, NullPool, create_engine
from sqlalchemy.orm import Session

from segmented.errors import InvalidInput, StoreRefused
from segmented.locks.sql_edge import BROKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

    from sqlalchemy import Engine

POSTGRESQL: Final = "postgresql+psycopg"
SQLITE: Final = "sqlite+pysqlite"
MYSQL: Final = {"MySQLdb": "mysql+mysqldb", "pymysql": "mysql+pymysql"}
"""By the module of the connection that Django has."""
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    POSTGRESQL: {"use_native_hstore": False},  # it would register a type on the caller's connection
}
NEEDS: Final = "within= needs a transaction that has begun: call it inside"


class _Lent:
    """A driver's connection as SQLAlchemy sees it."""

    autocommit = False
    isolation_level = ""

    def __init__(self, driver: Any, cursor: Callable[[], Any]) -> None:  # noqa: ANN401  # of any driver
        self._driver = driver
        self.cursor = cursor

    def _leave(self, *_: object, **__: object) -> None:
        """Leave the caller's connection and transaction unchanged."""

    commit = rollback = close = add_notice_handler = create_function = _leave

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of any driver
        return getattr(self._driver, name)


class _OnLoop:
    """A cursor of asyncio, for a thread beside the loop."""

    def __init__(self, cursor: Any, loop: asyncio.AbstractEventLoop) -> None:  # noqa: ANN401  # of any driver
        self._cursor = cursor
        self._loop = loop

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of any driver
        found = getattr(self._cursor, name)
        if not iscoroutinefunction(found):
            return found
        return lambda *args: asyncio.run_coroutine_threadsafe(found(*args), self._loop).result()


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A transaction of Django or psycopg."""

    owner: object
    """The caller's connection."""
    driver: _Lent
    dialect: URL
    spoil: Callable[[], None]
    """Called after a failure: the transaction must not be committed."""

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Return SQLAlchemy's connection; its end leaves the transaction open."""
        token = _LENT.set(self.driver)
        try:
            with _engine(self.dialect).connect() as connection:
                yield connection
        except BaseException:
            self.spoil()
            raise
        finally:
            _LENT.reset(token)


Transaction: TypeAlias = Session | Connection | Borrowed

_LENT: Final[ContextVar[_Lent]] = ContextVar("segmented_lent")


@cache
def _engine(dialect: URL) -> Engine:
    """Return the engine whose next connection is the one lent; it remembers the name of its first one's database."""
    options = OPTIONS.get(dialect.drivername, {}) | {"poolclass": NullPool, "hide_parameters": True}
    return create_engine(dialect, creator=_LENT.get, **options)


def begun(transaction: Any) -> Transaction:  # noqa: ANN401  # whatever the caller passes
    """Return the caller's transaction. Raises InvalidInput for anything else, and for a connection without one."""
    found = transaction
    if hasattr(found, "registry") and callable(found):  # a scoped session returns the current session
        found = found()
    if isinstance(found, Session | Borrowed):
        return found
    if isinstance(found, Connection):
        if not found.in_transaction():
            message = f"{NEEDS} `with engine.begin() as connection`"
            raise InvalidInput(message)
        return found
    borrowed = _of_django(found) or _of_psycopg(found)
    if borrowed is not None:
        return borrowed
    message = (
        f"within={type(transaction).__name__} is not a Session or Connection of SQLAlchemy, "
        "or a connection of Django or psycopg"
    )
    if hasattr(found, "run_sync") or _is_of("psycopg", "AsyncConnection", found):
        message += ": with asyncio's, use AsyncPool and AsyncGate"
    raise InvalidInput(message)


def begun_beside(transaction: object, loop: asyncio.AbstractEventLoop) -> Borrowed:
    """Return the transaction of psycopg's connection for asyncio, to be used in a thread. Raises InvalidInput."""
    if not _is_of("psycopg", "AsyncConnection", transaction):
        message = (
            f"within={type(transaction).__name__} is not an AsyncSession or AsyncConnection of SQLAlchemy or psycopg"
        )
        raise InvalidInput(message)
    from psycopg import AsyncCursor  # noqa: PLC0415  # it is optional, and imported by now
    from psycopg.rows import tuple_row  # noqa: PLC0415  # it is optional, and imported by now

    connection: Any = transaction
    return _lent_by(connection, lambda: _OnLoop(AsyncCursor(connection, row_factory=tuple_row), loop))


def connected(transaction: Transaction, stack: ExitStack) -> tuple[Connection, object]:
    """Return the transaction's connection until the stack's end, and what has one database for all its connections."""
    if isinstance(transaction, Borrowed):
        return stack.enter_context(transaction.connected()), transaction.owner
    connection = transaction.connection() if isinstance(transaction, Session) else transaction
    return connection, connection.engine


def _is_of(module: str, name: str, value: object) -> bool:
    """Return whether a value is of a class of an optional library, without importing it."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _of_psycopg(connection: Any) -> Borrowed | None:  # noqa: ANN401  # whatever the caller passes
    return _lent_by(connection, _cursor_of(connection)) if _is_of("psycopg", "Connection", connection) else None


def _lent_by(connection: Any, cursor: Callable[[], Any]) -> Borrowed:  # noqa: ANN401  # whatever the caller passes
    """Return the transaction of a connection of psycopg, which may have begun with its first statement only."""
    from psycopg.pq import TransactionStatus  # noqa: PLC0415  # it is optional, and imported by now

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        message = f"{NEEDS} `with connection.transaction()`"
        raise InvalidInput(message)
    return Borrowed(connection, _Lent(connection, cursor), URL.create(POSTGRESQL), lambda: None)


def _cursor_of(connection: Any) -> Callable[[], Any]:  # noqa: ANN401  # whatever the caller passes
    """Return what makes a plain cursor, whatever cursors and rows the caller's connection makes."""
    from psycopg import Cursor  # noqa: PLC0415  # it is optional, and imported by now
    from psycopg.rows import tuple_row  # noqa: PLC0415  # it is optional, and imported by now

    return lambda: Cursor(connection, row_factory=tuple_row)


def _of_django(connection: Any) -> Borrowed | None:  # noqa: ANN401  # whatever the caller passes
    django: Any = sys.modules.get("django.db")
    if django is None:
        return None
    from django.db.backends.base.base import BaseDatabaseWrapper  # noqa: PLC0415  # it is optional

    if connection is django.connection:
        connection = django.connections[django.DEFAULT_DB_ALIAS]
    if not isinstance(connection, BaseDatabaseWrapper):
        return None
    if connection.get_autocommit():
        message = f"{NEEDS} `with transaction.atomic()`"
        raise InvalidInput(message)
    if connection.needs_rollback:
        message = f"within Django's transaction on {connection.alias!r}: nothing is stored: {BROKEN}"
        raise StoreRefused(message)
    driver = connection.connection
    module, name = type(driver).__module__.partition(".")[0], None
    if _is_of("psycopg", "Connection", driver):
        lent, dialect = _Lent(driver, _cursor_of(driver)), POSTGRESQL
    elif _is_of("sqlite3", "Connection", driver):
        lent, dialect = _Lent(driver, driver.cursor), SQLITE
    elif module in MYSQL:
        lent, dialect, name = _Lent(driver, driver.cursor), MYSQL[module], connection.settings_dict["NAME"]
    else:
        message = (
            "within= takes Django's connections to PostgreSQL (psycopg 3), MySQL, MariaDB and SQLite, "
            f"not {connection.alias!r}, which is of {connection.vendor} with {module}"
        )
        raise InvalidInput(message)
    return Borrowed(connection, lent, URL.create(dialect, database=name), lambda: _spoil(connection))


def _spoil(connection: Any) -> None:  # noqa: ANN401  # whatever the caller passes
    if connection.in_atomic_block:
        connection.set_rollback(True)

"""Connecting: URL to engine, a deadline for every wait, and a check that refuses a database that could lose orders.

The drivers' errors are translated here, too, and those found that are worth a second attempt.

Connections are in autocommit: a single statement is its own transaction, and costs one round trip. For several
statements the gate sends BEGIN itself.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError as PoolTimeoutError,
)

from segmented.clock import in_seconds
from segmented.errors import DatabaseUnavailable, InvalidInput, StoreRefused
from segmented.imports import needs
from segmented.locks import sql_edge
from segmented.locks.sql_edge import code_of, said
from segmented.masking import is_harmless, is_readable, masked, unknown
from segmented.orders import mysql, postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import psycopg
    from psycopg.abc import PQGen

    from segmented.clock import Duration
    from segmented.orders.statements import Statements


ReplyT = TypeVar("ReplyT")

DRIVERS: Final = {
    "postgresql": postgresql.DRIVER,
    postgresql.DRIVER: postgresql.DRIVER,
    "sqlite": sqlite.DRIVER,
    sqlite.DRIVER: sqlite.DRIVER,
    "mysql": mysql.DRIVER,
    mysql.DRIVER: mysql.DRIVER,
    "mariadb": mysql.DRIVER,
    "mariadb+pymysql": mysql.DRIVER,
}
STATEMENTS: Final[dict[str, Callable[[], Statements]]] = {
    "postgresql": postgresql.PostgresStatements,
    "sqlite": sqlite.SqliteStatements,
    "mysql": mysql.MySqlStatements,
    "mariadb": mysql.MySqlStatements,
}
"""Each database's own statements, by the name of SQLAlchemy's dialect."""
PACKAGES: Final = {postgresql.DRIVER: "psycopg", mysql.DRIVER: "pymysql"}
"""The optional packages of the drivers."""
CONNECT_TIMEOUT_MIN: Final = 2
"""Seconds; the driver's minimum."""

GUARDED: Final = "segmented_guarded"
"""The execution option that marks an engine of `connect`: checked, bounded, in autocommit."""

MISPLACED: Final = re.compile(r"[,;]\w+=")
"""Options separated by commas, as other libraries write addresses."""
SQLITE_FULL: Final = 2


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds for each kind of wait. If two are nested, the inner one ends first and can report what it waited for."""

    statement: float

    @property
    def lock(self) -> float:
        """For a row locked by another transaction, for SQLite's single writer, and for a new connection."""
        return self.statement / 2

    @property
    def reply(self) -> float:
        """For the reply of a server that hangs."""
        return self.statement * 1.5


def connect(url: str, *, pool_size: int = 10, timeout: Duration = 10.0) -> Engine:
    """Return an engine for the order database at `url`, after one test connection.

    The URL is `postgresql://user:password@host/database` (psycopg 3), `mysql://user:password@host/database` (pymysql;
    MariaDB or MySQL) or `sqlite:///path`. `timeout` is the maximum time
    of one statement, in seconds. `pool_size` limits the connections; a thread waits for one as long as for a statement.
    An engine must not be used across a fork. Raises DatabaseUnavailable if no server answers, InvalidInput for a URL or
    a server that cannot be used; their texts never contain a password.
    """
    timeout = in_seconds(timeout)
    if pool_size < 1 or not timeout > 0:
        raise InvalidInput(
            f"an order database needs at least 1 connection and a positive timeout, not {pool_size} and {timeout:g} s"
        )
    parsed = parse(url)
    driver = parsed.drivername
    options = parsed.query if driver in PACKAGES else {}
    hidden = {name: value for name, value in options.items() if not _is_harmless(name, value)}
    try:
        engine = create_engine(
            parsed.difference_update_query(hidden),  # an engine shows its URL, with the values of all options
            connect_args=hidden,
            isolation_level="AUTOCOMMIT",
            execution_options={GUARDED: True},
            hide_parameters=True,
            enable_from_linting=False,  # it takes the joins of MariaDB and MySQL for products
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=timeout,
            pool_use_lifo=True,  # few connections, with prepared statements and a warm server process behind each
        )
    except ImportError as error:
        raise InvalidInput(needs(f"an order database at {parsed.get_backend_name()}://", PACKAGES[driver])) from error
    PREPARE[driver](engine, Deadlines(timeout))
    try:
        _try_out(engine)
    except InvalidInput:
        engine.dispose()
        raise
    except (SQLAlchemyError, ValueError, TypeError, OSError) as error:  # OSError: a certificate that is not there
        engine.dispose()
        message = f"the order database {shown(parsed)} cannot be used: {said(error)}"
        raise (DatabaseUnavailable if is_away(error) else InvalidInput)(message) from error
    except BaseException:
        engine.dispose()
        raise
    return engine


def _is_harmless(name: str, value: str | tuple[str, ...]) -> bool:
    return all(is_harmless(name, one) for one in ((value,) if isinstance(value, str) else value))


def parse(url: str) -> URL:
    """Return the URL with its driver filled in. Raises InvalidInput."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or _may_hide_a_password(url, parsed) or not _is_text(parsed):
        # Neither the URL nor the error, which may quote it, is shown: an unparsed part may be a password.
        raise InvalidInput(
            "the order database's URL cannot be read; it should look like postgresql://user:password@host/database "
            "(with %40 for @ in a password), mysql://user:password@host/database or sqlite:///path"
        )
    driver = DRIVERS.get(parsed.drivername)
    if driver is None:
        raise InvalidInput(
            f"{parsed.drivername}:// is not a supported order database; "
            "use postgresql:// (psycopg 3), mysql:// (pymysql) or sqlite:///path"
        )
    if driver == sqlite.DRIVER and not _is_plain_file(parsed):
        raise InvalidInput(f"the order database {shown(parsed)} is not a plain file; name one as in sqlite:///path")
    if driver in PACKAGES:
        _check_options(parsed, driver)
    return parsed.set(drivername=driver)


def _may_hide_a_password(url: str, parsed: URL) -> bool:
    """Return whether a part of a password may have been taken for a host, a database or an option."""
    if "@" in (parsed.host or "") or (parsed.drivername in DRIVERS and not is_readable(url)):
        return True
    is_file = parsed.get_backend_name() == "sqlite"
    return not is_file and ("@" in (parsed.database or "") or _has_misplaced_options(parsed))


def _is_text(url: URL) -> bool:
    """Return whether every part is text for a driver: a NUL would end the address there, and its rest would be lost."""
    options = [*url.query, *(value for values in url.normalized_query.values() for value in values)]
    parts = [part for part in (url.username, url.password, url.host, url.database, *options) if part is not None]
    return all("\0" not in part and part.encode(errors="ignore").decode() == part for part in parts)


def _has_misplaced_options(url: URL) -> bool:
    where = f"{url.host or ''},{url.database or ''}"
    return MISPLACED.search(where) is not None


def _check_options(url: URL, driver: str) -> None:
    """Refuse an option that the driver does not know; the driver would report it as an unreachable server."""
    try:
        known = mysql.OPTIONS if driver == mysql.DRIVER else postgresql.known_options()
    except ImportError:  # `connect` says that it is missing
        return
    if not all(port.isdecimal() for port in ",".join(url.normalized_query.get("port", ())).split(",") if port):
        raise InvalidInput(f"the order database {shown(url)} cannot be used: the option port should be a number")
    for name in url.query:
        if name not in known:
            raise InvalidInput(f"the order database {shown(url)} cannot be used: {unknown('option', name, known)}")


def _is_plain_file(url: URL) -> bool:
    """Return whether the URL names a plain file: not in memory, where each connection has its own, and no options."""
    is_in_memory = url.database in {None, "", ":memory:"} or "mode" in url.query
    return not is_in_memory and (not url.query or "uri" in url.query)


def shown(url: URL) -> str:
    """Return the URL without its passwords."""
    return masked(url.set(drivername=url.get_backend_name()).render_as_string(hide_password=False))


def _try_out(engine: Engine) -> None:
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql(sqlite.SqliteStatements.begin)
            # A write, because BEGIN IMMEDIATE alone succeeds on a read-only file.
            connection.exec_driver_sql("CREATE TABLE segmented_try_out (taken INTEGER)")
            connection.rollback()


def _prepare_postgresql(engine: Engine, deadlines: Deadlines) -> None:
    """Set every connection's deadlines in its start-up message, which costs no round trip, and check each server."""
    import psycopg  # noqa: PLC0415  # it is optional

    connection_class = _deadline_connection(deadlines.reply)
    settings = {
        "statement_timeout": f"{deadlines.statement * 1_000:.0f}",
        "lock_timeout": f"{deadlines.lock * 1_000:.0f}",
        "idle_in_transaction_session_timeout": f"{deadlines.reply * 1_000:.0f}",
        "default_transaction_isolation": r"read\ committed",
    }
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    defaults: dict[str, Any] = {
        "connect_timeout": max(CONNECT_TIMEOUT_MIN, ceil(deadlines.lock)),
        "application_name": "segmented",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": f"{deadlines.reply * 1_000:.0f}",
    }

    @event.listens_for(engine, "do_connect")
    def _connect(
        _dialect: object, _record: object, _arguments: object, named: dict[str, Any]
    ) -> psycopg.Connection[Any]:
        theirs = named.pop("options", "")
        try:
            return connection_class.connect(**(defaults | named), options=f"{options} {theirs}")
        except psycopg.OperationalError as error:
            if "options" not in str(error):
                raise
            return connection_class.connect(**(defaults | named))  # of a pooler: `_guard` looks at the settings

    event.listen(engine, "do_execute", postgresql.raise_failed)

    @event.listens_for(engine, "connect")
    def _guard(connection: psycopg.Connection[Any], _record: object) -> None:
        row = connection.execute(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'), "
            "current_setting('transaction_read_only'), pg_backend_pid(), current_user, "
            + ", ".join(f"current_setting('{name}')" for name in settings)
        ).fetchone()
        fsync, synchronous_commit, read_only, process_id, role, *found = row or ("unknown", "off", "on", 0, "")
        where = shown(engine.url)
        if process_id != connection.info.backend_pid:  # a pooler: the next transaction may be on another connection
            connection.prepare_threshold = None
            _check_pooled(where, role, dict(zip(settings, found, strict=True)), settings)
        if fsync != "on":
            message = f"the order database {where} has fsync={fsync} and would lose orders in a power cut; set fsync=on"
            raise InvalidInput(message)
        if synchronous_commit == "off":
            message = f"the order database {where} has synchronous_commit=off and would lose sold orders; set it to on"
            raise InvalidInput(message)
        if read_only != "off":
            message = f"the order database {where} is read-only, as a standby is, and takes no orders; name the primary"
            raise InvalidInput(message)


def _deadline_connection(reply_timeout: float) -> type[psycopg.Connection[Any]]:
    """Return a connection class with a client-side deadline: a frozen server's own time-outs do not work."""
    import psycopg  # noqa: PLC0415  # it is optional
    from psycopg.pq import TransactionStatus  # noqa: PLC0415  # it is optional

    class DeadlineConnection(psycopg.Connection[Any]):
        """Gives up waiting for a reply after that many seconds, and closes itself as the reply may still come."""

        def wait(self, gen: PQGen[ReplyT], interval: float = 0.1, timeout: float | None = None) -> ReplyT:
            """Wait for the server. Raises psycopg.OperationalError."""
            try:
                return super().wait(gen, interval, reply_timeout if timeout is None else timeout)
            except psycopg.OperationalError as error:
                if self.closed or self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                    raise
                self.close()
                raise psycopg.OperationalError(f"no reply within {reply_timeout:g} s") from error

    return DeadlineConnection


def _check_pooled(where: str, role: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise InvalidInput if a connection pooler has dropped the settings of the start-up message."""
    dropped = [
        name
        for name, value in found.items()
        if value == "0" or (name == "default_transaction_isolation" and value != "read committed")
    ]
    if dropped:
        cures = " ".join(f"ALTER ROLE {role} SET {name} = '{wanted[name].replace(chr(92), '')}';" for name in dropped)
        raise InvalidInput(
            f"the order database {where} is behind a connection pooler that drops {', '.join(dropped)}, so a wait "
            f"could last forever: set them in PostgreSQL ({cures}) and reconnect the pooler, or name the address of "
            "PostgreSQL itself"
        )


def _prepare_mysql(engine: Engine, deadlines: Deadlines) -> None:
    mysql.prepare(engine, shown(engine.url), statement=deadlines.statement, lock=deadlines.lock, reply=deadlines.reply)


def _prepare_sqlite(engine: Engine, deadlines: Deadlines) -> None:
    """Let readers and the single writer work concurrently, and sync every commit to disk."""

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, _arguments: object, named: dict[str, Any]) -> None:
        named["timeout"] = deadlines.lock

    @event.listens_for(engine, "connect")
    def _guard(connection: sqlite3.Connection, _record: object) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode != "wal":
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        connection.execute("PRAGMA synchronous=FULL")
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        if mode != "wal" or synchronous != SQLITE_FULL:
            raise InvalidInput(
                f"the order database {shown(engine.url)} cannot be made safe: "
                f"journal_mode={mode}, synchronous={synchronous}"
            )


PREPARE: Final = {
    postgresql.DRIVER: _prepare_postgresql,
    mysql.DRIVER: _prepare_mysql,
    sqlite.DRIVER: _prepare_sqlite,
}
"""Function that sets up a new connection, by driver."""


# --- the drivers' errors ---

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

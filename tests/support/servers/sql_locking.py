"""Row locks on every kind of database and in both colours, behind one blocking face, so that a test is written once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar, cast

import sqlalchemy
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from segmented.locks.other_servers.sql_row import (
    AsyncSqlRowLock,
    HeldRow,
    SqlRowLock,
    async_create_lock_table,
    create_lock_table,
)
from segmented.locks.sql_edge import TABLE_NAME
from tests.support.servers.nodes import eventually

OutcomeT = TypeVar("OutcomeT")
Given = dict[str, Any] | None

CALL_SECONDS: Final = 100.0
THREADS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class SqlFlavour:
    """Which database, by which way, in which colour."""

    database: str
    colour: str

    def __str__(self) -> str:
        """Name the parameter of a test."""
        return f"{self.database}-{self.colour}"

    @property
    def is_mariadb(self) -> bool:
        """Is it MariaDB, and not PostgreSQL?"""
        return self.database == "mariadb"


class Session:
    """A connection of its own with a transaction, in either colour; `commit` and `rollback` begin the next one."""

    def __init__(self, connection: Connection | AsyncConnection, side: SqlSide | None = None) -> None:
        """Use a connection; the calls of one for asyncio are awaited in the loop of its side."""
        self.connection: Any = connection
        self._side = side
        self._lock = cast(
            "type[SqlRowLock]", AsyncSqlRowLock if isinstance(connection, AsyncConnection) else SqlRowLock
        )
        self._wait(self.connection.begin())

    def acquire(self, name: str, *, timeout: float | None = 20.0) -> HeldRow:
        return self._wait(self._lock(self.connection, name).acquire(timeout=timeout))

    def try_acquire(self, name: str) -> HeldRow | None:
        return self._wait(self._lock(self.connection, name).try_acquire())

    def try_acquire_any(self, names: Sequence[str]) -> HeldRow | None:
        return self._wait(self._lock.try_acquire_any(self.connection, names))

    def run(self, words: str, given: Given = None) -> list[Any]:
        """Send one statement; return its rows, if it has any."""
        if isinstance(self.connection, AsyncConnection):
            return self._wait(self.connection.run_sync(rows, words, given))
        return rows(self.connection, words, given)

    def value(self, words: str) -> Any:  # noqa: ANN401  # whatever the statement selects
        return self.run(words)[0][0]

    def commit(self) -> None:
        self._wait(self.connection.commit())
        self._wait(self.connection.begin())

    def rollback(self) -> None:
        self._wait(self.connection.rollback())
        self._wait(self.connection.begin())

    def close(self) -> None:
        self._wait(self.connection.close())

    def _wait(self, answer: OutcomeT | Awaitable[OutcomeT]) -> OutcomeT:
        if self._side is None:
            return cast("OutcomeT", answer)
        return self._side.wait(cast("Awaitable[OutcomeT]", answer))


class SqlSide:
    """One database with its lock table, and sessions on it that end with the test."""

    def __init__(self, flavour: SqlFlavour, url: str) -> None:
        """Make the tables at `url` anew."""
        self.flavour = flavour
        self._url = sqlalchemy.make_url(url)
        self.engine = make_engine(url)
        self.direct = make_engine(url, isolation_level="AUTOCOMMIT")
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="test")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()
        driver = "mysql+asyncmy" if flavour.is_mariadb else "postgresql+psycopg"
        self.async_engine = create_async_engine(
            self._url.set(drivername=driver), connect_args=connect_args(self._url), pool_size=THREADS_MAX
        )
        self._sessions: list[Session] = []
        self.admin(f"DROP TABLE IF EXISTS {TABLE_NAME}, notes")
        self.create()

    def create(self, *, names: Sequence[str] = ()) -> None:
        if self.flavour.colour == "sync":
            create_lock_table(self.engine, names=names)
        else:
            self.wait(async_create_lock_table(self.async_engine, names=names))

    def open(self) -> Session:
        """Begin a transaction on a connection of its own."""
        if self.flavour.colour == "sync":
            session = Session(self.engine.connect())
        else:
            session = Session(self.wait(self.async_engine.connect()), self)
        self._sessions.append(session)
        return session

    def start(self, function: Callable[[], OutcomeT]) -> Future[OutcomeT]:
        """Begin a call that may take a while."""
        return self._threads.submit(function)

    def wait(self, answer: Awaitable[OutcomeT]) -> OutcomeT:
        """Await it in the loop; block this thread until it has ended."""

        async def awaited() -> OutcomeT:
            return await answer

        return self.begin(awaited()).result(CALL_SECONDS)

    def begin(self, coroutine: Coroutine[Any, Any, OutcomeT]) -> Future[OutcomeT]:
        """Run it in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def admin(self, words: str, given: Given = None) -> list[Any]:
        """Send one statement in autocommit."""
        with self.direct.connect() as connection:
            return rows(connection, words, given)

    def backend(self, session: Session) -> int:
        """Return the number of the server's side of a session."""
        return int(session.value("SELECT CONNECTION_ID()" if self.flavour.is_mariadb else "SELECT pg_backend_pid()"))

    def kill(self, backend: int) -> None:
        """End the server's side of a session, as a crash would."""
        self.admin(f"KILL {backend}" if self.flavour.is_mariadb else f"SELECT pg_terminate_backend({backend})")

    def wait_for_waiters(self, count: int) -> None:
        """Return once exactly this many transactions wait for a lock."""
        words = (
            "SELECT CAST(variable_value AS INTEGER) FROM information_schema.global_status "
            "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'"
            if self.flavour.is_mariadb
            else "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        eventually(lambda: self.admin(words) == [(count,)], f"{count} transactions wait for a lock")

    def close(self) -> None:
        for session in self._sessions:
            with suppress(SQLAlchemyError):
                session.close()
        self._threads.shutdown()
        self.wait(self.async_engine.dispose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()
        self.engine.dispose()
        self.direct.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_engine(url: str, *, isolation_level: str | None = None, pool_size: int = THREADS_MAX) -> sqlalchemy.Engine:
    options: dict[str, Any] = {} if isolation_level is None else {"isolation_level": isolation_level}
    return sqlalchemy.create_engine(
        url, connect_args=connect_args(sqlalchemy.make_url(url)), pool_size=pool_size, max_overflow=0, **options
    )


def connect_args(url: sqlalchemy.URL) -> dict[str, Any]:
    """Return what a client behind a transaction pooler needs: no prepared statements, which belong to a session."""
    return {"prepare_threshold": None} if url.get_backend_name() == "postgresql" else {}


def rows(connection: Connection, words: str, given: Given = None) -> list[Any]:
    """Send one statement; return its rows, if it has any."""
    found = connection.execute(text(words), given)
    return [tuple(row) for row in found] if found.returns_rows else []


def sent_by(connection: Connection) -> list[str]:
    """Return the list to which every statement of this connection is added."""
    sent: list[str] = []

    @event.listens_for(connection, "before_cursor_execute")
    def _note(_connection: object, _cursor: object, words: str, *_: object) -> None:
        sent.append(words)

    return sent

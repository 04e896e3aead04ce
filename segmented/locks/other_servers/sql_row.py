"""`SqlRowLock`: SELECT ... FOR UPDATE on one row of a small table, until the caller's transaction ends.

The algorithm is the database's own row lock through the primary key; nothing else in the table is locked. A failed try
leaves the transaction unchanged. The fencing token is `max(last + 1, the database's microseconds)`, as for `Lock`,
after Kleppmann ("How to do distributed locking", 2016).

Guarantees: at most one open transaction holds a name; the database enforces it. There is no lease that expires and no
clock to trust: the lock ends with the transaction, by commit, by rollback, or because the connection was lost. A new
holder sees everything that earlier holders committed, if the acquire is the first statement of its transaction. It is
safe behind a proxy that pools by transaction (PgBouncer), because it keeps no session state.

Not guaranteed:

- that a holder learns at once that its connection is lost: its next statement and its commit fail, but the locks are
  free as soon as the database notices. Use the fencing token for work outside the database in between;
- that a token is durable before the commit. Tokens of committed holders always grow. A token that was rolled back, or
  lost with its connection, is not stored: a later one is higher because the database's clock has advanced, unless that
  clock was set back, or a failover went to a server whose clock is behind;
- the order in which waiters are served;
- the lock after a ROLLBACK TO a savepoint that is older than the acquire: it may free the row without notice.

The table has one row per name: the name and the last fencing token that was committed under it. Do not delete rows
while locks are in use.

| | PostgreSQL | MariaDB, MySQL |
| --- | --- | --- |
| a try | `SKIP LOCKED`: no error, so no savepoint | `NOWAIT`: `SKIP LOCKED` leaves a gap locked |
| a wait | in a savepoint, with `SET LOCAL` time-outs | a time-out for the one statement |
| a missing row | inserted in the caller's transaction | inserted outside it, see `sql_mysql` |

Nothing outlives the transaction, so a proxy may then give the server's connection to another client.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from sqlalchemy import DDL, BigInteger, Column, Connection, Engine, MetaData, String, Table, event, text
from sqlalchemy.dialects.mysql import VARBINARY
from sqlalchemy.schema import CreateTable

from segmented.clock import Clock, Duration, SystemClock
from segmented.errors import AcquireTimeout, InvalidInput
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_name, checked_timeout
from segmented.locks.hints import Hinted
from segmented.locks.other_servers.sql_mysql import MySqlRows
from segmented.locks.other_servers.sql_postgresql import PostgresRows
from segmented.locks.sql_edge import TABLE_NAME, is_in_autocommit, translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from segmented.clock import Clock


NAME_BYTES_MAX: Final = 1_024
"""In UTF-8: the size that fits into one index entry in every database."""
CREATE_LOCK: Final = 7_341_652_099
"""An arbitrary number for the advisory lock that no other program is likely to use."""
FILLFACTOR: Final = 50
"""Percent of a page filled at first: the rest is for new versions of rows, which change with every acquire."""
PAGE_SIZE: Final = 1_000
lock_metadata = MetaData()
"""For tools that create tables from metadata, such as Alembic."""
locks = Table(
    TABLE_NAME,
    lock_metadata,
    # Compared byte by byte: no collation may treat two names as equal, by case or by a trailing blank.
    Column(
        "name",
        String(NAME_BYTES_MAX, collation="C").with_variant(VARBINARY(NAME_BYTES_MAX), "mysql", "mariadb"),
        primary_key=True,
    ),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)
_FILL: Final[Any] = DDL(f"ALTER TABLE {TABLE_NAME} SET (fillfactor = {FILLFACTOR})")  # type: ignore[no-untyped-call]  # it has no types
FILL: Final = _FILL.execute_if(dialect="postgresql")
event.listen(locks, "after_create", FILL)


def checked_row_name(name: str) -> str:
    """Return the name. Raises InvalidInput if it is invalid or too long for an index."""
    name = checked_name(name, "a row lock")
    length = len(name.encode())
    if length > NAME_BYTES_MAX:
        raise InvalidInput(f"the name of a row lock has {length} bytes in UTF-8; the maximum is {NAME_BYTES_MAX}")
    return name


async def async_create_lock_table(engine: AsyncEngine, *, names: Iterable[str] = ()) -> None:
    """Create the table `segmented_locks` and the rows of `names`, if they do not exist.

    It may run repeatedly and concurrently. The first acquire of a name inserts its row if it is missing; a row inserted
    here saves it that work. Raises InvalidInput for a database that has no row locks, and StoreError.
    """
    wanted = [checked_row_name(name) for name in names]
    with translated("the table of the row locks"):  # asyncio only
        async with engine.connect() as connection:
            await connection.run_sync(_create, wanted)
    # threads: with translated("the table of the row locks"), engine.connect() as connection:
    # threads:     _create(connection, wanted)


def _create(connection: Connection, names: list[str]) -> None:
    rows = rows_of(connection)
    connection.execution_options(isolation_level="READ COMMITTED")
    with connection.begin():
        rows.begin_creating(connection, CREATE_LOCK)
        if not connection.dialect.has_table(connection, TABLE_NAME):
            connection.execute(CreateTable(locks, if_not_exists=True))
            FILL(locks, connection)
    for first in range(0, len(names), PAGE_SIZE):
        with connection.begin():
            rows.insert_missing(connection, names[first : first + PAGE_SIZE])


class Rows(Protocol):
    """The rows of the lock table, in the SQL of one kind of database."""

    def begin_creating(self, connection: Connection, lock: int) -> None:
        """Wait for other clients that create the table, if two at once would fail."""

    def insert_missing(self, connection: Connection, names: Sequence[str]) -> None:
        """Insert the missing rows of these names; `connection` is in a separate transaction."""

    def try_lock(self, connection: Connection, names: Sequence[str]) -> str | None:
        """Lock the row of one of these names that is not locked, without waiting, and return the name."""

    def wait_for(self, connection: Connection, name: str, *, deadline: float, clock: Clock) -> bool:
        """After a failed try, wait in the database until the row is ours (True) or the deadline passes."""

    def raise_fence(self, connection: Connection, name: str) -> int:
        """Return the next fencing token of a row that we have locked: max(last + 1, the database's microseconds)."""


ROWS: Final[dict[str, Rows]] = {"postgresql": PostgresRows(), "mysql": MySqlRows(), "mariadb": MySqlRows()}


def rows_of(connection: Connection) -> Rows:
    """Return the access object for this connection's database. Raises InvalidInput if it has no row locks."""
    found = ROWS.get(connection.dialect.name)
    if found is None:
        raise InvalidInput(f"row locks need PostgreSQL, MariaDB or MySQL; {connection.dialect.name} cannot lock a row")
    return found


CLOCK: Final[Clock] = SystemClock()
NAMES_MAX: Final = 1_000
"""Maximum number of names that one call may choose from."""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A name that the transaction holds until it ends.

    It has neither `release` nor `renew` and is not a context manager: only a commit or a rollback ends it, because if
    the row were free before the commit, the next holder would not see the uncommitted changes.
    """

    name: str
    fencing_token: int
    """Higher than the token of every holder that committed; durable only once this transaction commits."""


class AsyncSqlRowLock(Hinted):
    """A lock by name for the rest of a transaction, for asyncio: PostgreSQL, MariaDB, MySQL.

    The transaction is the holder: a repeat in it succeeds at once, with a higher token. The connection must be in a
    transaction and not in autocommit. The table comes from `create_lock_table`. With asyncio, SQLAlchemy closes the
    connection of a cancelled acquire, which ends the transaction and all its locks.
    """

    def __init__(self, connection: AsyncConnection, name: str) -> None:
        """Create a lock `name` in the transaction begun on `connection`. Raises InvalidInput for an invalid name."""
        self.name = checked_row_name(name)
        self._connection = connection

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, on {self._connection.dialect.name})"

    async def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> HeldRow:
        """Wait up to `timeout` seconds (default: 60; None: forever; 0: one try) and hold the name.

        Raises AcquireTimeout, which leaves the transaction unchanged; TransactionConflict for a deadlock, after which
        the transaction is rolled back; StoreUnavailable if the connection is lost; StoreRefused; and InvalidInput for
        a connection without a transaction.
        """
        # threads: return _acquire(self._connection, self.name, checked_timeout(timeout))
        return await self._connection.run_sync(_acquire, self.name, checked_timeout(timeout))  # asyncio only

    async def try_acquire(self) -> HeldRow | None:
        """Hold the name if it is free now; otherwise return None and leave the transaction unchanged.

        Raises as `acquire`.
        """
        # threads: return _try_acquire(self._connection, [self.name])
        return await self._connection.run_sync(_try_acquire, [self.name])  # asyncio only

    @staticmethod
    async def try_acquire_any(connection: AsyncConnection, names: Iterable[str]) -> HeldRow | None:
        """Hold any one of these names (up to 1,000) that is free now, or return None.

        PostgreSQL skips locked rows in one statement; MariaDB and MySQL try name by name. Raises as `acquire`.
        """
        # threads: return _try_acquire(connection, _checked_names(names))
        return await connection.run_sync(_try_acquire, _checked_names(names))  # asyncio only


# --- SQLAlchemy runs these over an asyncio connection, too ---


def _acquire(connection: Connection, name: str, timeout: float | None) -> HeldRow:
    deadline = CLOCK.now() + (inf if timeout is None else timeout)
    held = _try_acquire(connection, [name])
    if held is None and timeout != 0:
        with translated(f"lock {name!r}", connection):
            rows = rows_of(connection)
            if rows.wait_for(connection, name, deadline=deadline, clock=CLOCK):
                held = HeldRow(name, rows.raise_fence(connection, name))
    if held is None:
        raise AcquireTimeout(name, timeout or 0.0)
    return held


def _try_acquire(connection: Connection, names: Sequence[str]) -> HeldRow | None:
    with translated(f"lock {' or '.join(map(repr, names[:3]))}", connection):
        rows = rows_of(connection)
        _require_transaction(connection)
        found = rows.try_lock(connection, names)
        return None if found is None else HeldRow(found, rows.raise_fence(connection, found))


def _checked_names(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise InvalidInput(f"several names are a list, not the text {names!r}")
    checked = list(dict.fromkeys(checked_row_name(name) for name in names))
    if not checked:
        raise InvalidInput("the list of names is empty")
    if len(checked) > NAMES_MAX:
        raise InvalidInput(f"one of {len(checked):,} names cannot be locked: the maximum is {NAMES_MAX:,}")
    return checked


def _require_transaction(connection: Connection) -> None:
    """Raise InvalidInput for a connection on which the lock would end with the statement that takes it."""
    if not connection.in_transaction():
        raise InvalidInput("a row lock lasts as long as a transaction, and this connection has not begun one")
    if is_in_autocommit(connection):
        raise InvalidInput(
            "a row lock lasts as long as a transaction, and this connection is in autocommit; "
            'use connection.execution_options(isolation_level="READ COMMITTED") or another engine'
        )


# --- For threads: written by `make sync` from the classes above. ---


def create_lock_table(engine: Engine, *, names: Iterable[str] = ()) -> None:
    """Create the table `segmented_locks` and the rows of `names`, if they do not exist.

    It may run repeatedly and concurrently. The first acquire of a name inserts its row if it is missing; a row inserted
    here saves it that work. Raises InvalidInput for a database that has no row locks, and StoreError.
    """
    wanted = [checked_row_name(name) for name in names]
    with translated("the table of the row locks"), engine.connect() as connection:
        _create(connection, wanted)


class SqlRowLock(Hinted):
    """A lock by name for the rest of a transaction, for threads: PostgreSQL, MariaDB, MySQL.

    The transaction is the holder: a repeat in it succeeds at once, with a higher token. The connection must be in a
    transaction and not in autocommit. The table comes from `create_lock_table`. With asyncio, SQLAlchemy closes the
    connection of a cancelled acquire, which ends the transaction and all its locks.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        """Create a lock `name` in the transaction begun on `connection`. Raises InvalidInput for an invalid name."""
        self.name = checked_row_name(name)
        self._connection = connection

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, on {self._connection.dialect.name})"

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> HeldRow:
        """Wait up to `timeout` seconds (default: 60; None: forever; 0: one try) and hold the name.

        Raises AcquireTimeout, which leaves the transaction unchanged; TransactionConflict for a deadlock, after which
        the transaction is rolled back; StoreUnavailable if the connection is lost; StoreRefused; and InvalidInput for
        a connection without a transaction.
        """
        return _acquire(self._connection, self.name, checked_timeout(timeout))

    def try_acquire(self) -> HeldRow | None:
        """Hold the name if it is free now; otherwise return None and leave the transaction unchanged.

        Raises as `acquire`.
        """
        return _try_acquire(self._connection, [self.name])

    @staticmethod
    def try_acquire_any(connection: Connection, names: Iterable[str]) -> HeldRow | None:
        """Hold any one of these names (up to 1,000) that is free now, or return None.

        PostgreSQL skips locked rows in one statement; MariaDB and MySQL try name by name. Raises as `acquire`.
        """
        return _try_acquire(connection, _checked_names(names))

"""The table of the row locks, with one row per name, which is never deleted; and the interface to each database.

A row is a lock's name and the last fencing token that was committed under it. Do not delete rows while locks are in
use.

| | PostgreSQL | MariaDB, MySQL |
| --- | --- | --- |
| a try | `SKIP LOCKED`: no error, so no savepoint | `NOWAIT`: `SKIP LOCKED` leaves a gap locked |
| a wait | in a savepoint, with `SET LOCAL` time-outs | a time-out for the one statement |
| a missing row | inserted in the caller's transaction | inserted outside it, see `sql_mysql` |

Nothing outlives the transaction, so a proxy may then give the server's connection to another client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from sqlalchemy import DDL, BigInteger, Column, Connection, Engine, MetaData, String, Table, event, text
from sqlalchemy.dialects.mysql import VARBINARY
from sqlalchemy.schema import CreateTable

from segmented.errors import InvalidInput
from segmented.locks.durations import checked_name
from segmented.locks.sql_edge import TABLE_NAME, translated
from segmented.locks.sql_mysql import MySqlRows
from segmented.locks.sql_postgresql import PostgresRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

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


def create_lock_table(engine: Engine, *, names: Iterable[str] = ()) -> None:
    """Create the table `segmented_locks` and the rows of `names`, if they do not exist.

    It may run repeatedly and concurrently. The first acquire of a name inserts its row if it is missing; a row inserted
    here saves it that work. Raises InvalidInput for a database that has no row locks, and StoreError.
    """
    wanted = [checked_row_name(name) for name in names]
    with translated("the table of the row locks"), engine.connect() as connection:
        _create(connection, wanted)


async def async_create_lock_table(engine: AsyncEngine, *, names: Iterable[str] = ()) -> None:
    """Create the table `segmented_locks` and the rows of `names`, if they do not exist; see `create_lock_table`."""
    wanted = [checked_row_name(name) for name in names]
    with translated("the table of the row locks"):
        async with engine.connect() as connection:
            await connection.run_sync(_create, wanted)


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

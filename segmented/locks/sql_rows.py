"""What a database has to offer for row locks, and who offers it.

| | PostgreSQL | MariaDB, MySQL |
| --- | --- | --- |
| a try | `SKIP LOCKED`: no error, so no savepoint | `NOWAIT`: `SKIP LOCKED` leaves a gap locked |
| a wait | in a savepoint, with `SET LOCAL` time-outs | a time-out for the one statement |
| a missing row | inserted in the caller's transaction | inserted beside it, see `sql_mysql` |

Nothing outlives the transaction, so that a proxy may hand the server's connection to somebody else after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from segmented.errors import InvalidInput
from segmented.locks.sql_mysql import MySqlRows
from segmented.locks.sql_postgresql import PostgresRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from segmented.clock import Clock


class Rows(Protocol):
    """The rows of the lock table, in the words of one kind of database."""

    def begin_creating(self, connection: Connection, lock: int) -> None:
        """Take turns with others who make the table, where two at once would fail."""

    def insert_missing(self, connection: Connection, names: Sequence[str]) -> None:
        """Insert the rows of these names that are not there; `connection` is in a transaction of its own."""

    def try_lock(self, connection: Connection, names: Sequence[str]) -> str | None:
        """Lock the row of one of these names that nobody else has locked, without waiting; return the name."""

    def wait_for(self, connection: Connection, name: str, *, deadline: float, clock: Clock) -> bool:
        """After a try that failed, wait in the database until the row is ours (True) or until the deadline."""

    def raise_fence(self, connection: Connection, name: str) -> int:
        """Return the next fencing token of a row that we have locked: max(last + 1, the database's microseconds)."""


ROWS: Final[dict[str, Rows]] = {"postgresql": PostgresRows(), "mysql": MySqlRows(), "mariadb": MySqlRows()}


def rows_of(connection: Connection) -> Rows:
    """Return what speaks to this connection's database; raises InvalidInput for one that has no row locks."""
    found = ROWS.get(connection.dialect.name)
    if found is None:
        message = f"row locks need PostgreSQL, MariaDB or MySQL; {connection.dialect.name} cannot lock a row"
        raise InvalidInput(message)
    return found

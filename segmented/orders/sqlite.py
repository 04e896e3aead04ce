"""SQLite's words: one writer at a time, so a confirm takes the write lock first and then needs two statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.dialects.sqlite import dialect, insert as insert_on_conflict

from segmented.orders.statements import insert_confirmed, take_units, void_values
from segmented.orders.tables import orders

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.sql.elements import ClauseElement

DRIVER: Final = "sqlite+pysqlite"


class SqliteStatements:
    """Texts for the sqlite3 module."""

    begin = "BEGIN IMMEDIATE"
    """A plain BEGIN would read first, and then fail instead of waiting when it wants to write."""

    def __init__(self) -> None:
        """Build the texts."""
        self._take_fenced = _text(take_units(fenced=True))
        self._take = _text(take_units(fenced=False))
        self._insert = _text(insert_confirmed())
        self._void = _text(insert_on_conflict(orders).values(void_values()).on_conflict_do_nothing())

    def begin_creating(self, connection: Connection) -> None:
        """Open a transaction; there is one writer anyway."""
        connection.exec_driver_sql(self.begin)

    def confirm(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Take the units and insert the order. An order that has a row raises IntegrityError: roll back."""
        text = self._take if values["given_fence"] is None else self._take_fenced
        if connection.exec_driver_sql(text, values).rowcount == 0:
            return False
        connection.exec_driver_sql(self._insert, values)
        return True

    def confirm_alone(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Do the same in a transaction; the caller's connection rolls it back when it raises."""
        connection.exec_driver_sql(self.begin)
        changed = self.confirm(connection, values)
        connection.commit()
        return changed

    def void(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Insert the void unless the order has a row."""
        return connection.exec_driver_sql(self._void, values).rowcount == 1


def _text(statement: ClauseElement) -> str:
    return str(statement.compile(dialect=dialect(paramstyle="named")))

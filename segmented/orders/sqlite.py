"""SQLite's statements: there is one writer at a time, so a confirm takes the write lock first, then two statements."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam
from sqlalchemy.dialects.sqlite import dialect, insert as insert_on_conflict
from sqlalchemy.exc import DBAPIError

from segmented.orders.statements import (
    SELECT_HAS_ORDER,
    SELECT_SEGMENTS,
    SeveralStatements,
    change_row,
    confirmed_values,
    give_back,
    insert_confirmed,
    select_orders,
    take_units,
    void_values,
)
from segmented.orders.tables import orders, segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection
    from sqlalchemy.sql.elements import ClauseElement


DRIVER: Final = "sqlite+pysqlite"


class SqliteStatements(SeveralStatements):
    """SQL texts for the sqlite3 module."""

    begin = "BEGIN IMMEDIATE"
    """A plain BEGIN would read first, and then fail instead of waiting for the write lock."""
    undoes_tables = True
    these_segments = SELECT_SEGMENTS.where(segments.c.segment.in_(bindparam("numbers", expanding=True)))
    """BEGIN IMMEDIATE has locked them."""
    these_orders = select_orders(orders.c.order_id.in_(bindparam("order_ids", expanding=True)))

    def __init__(self) -> None:
        """Build the texts."""
        self._take_fenced = _text(take_units(fenced=True).returning(segments.c.sequence))
        self._take = _text(take_units(fenced=False).returning(segments.c.sequence))
        self._insert = _text(insert_confirmed())
        self._change = _text(change_row())
        self._has_order = _text(SELECT_HAS_ORDER)
        self._void = _text(insert_on_conflict(orders).values(void_values()).on_conflict_do_nothing())

    @contextmanager
    def creating(self, connection: Connection) -> Iterator[None]:
        """Open a transaction; there is only one writer."""
        connection.exec_driver_sql(self.begin)
        yield

    def confirm(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Take the units and insert the order. An order that has a row raises IntegrityError: roll back."""
        text = self._take if values["given_fence"] is None else self._take_fenced
        sequence: int | None = connection.exec_driver_sql(text, values).scalar()
        if sequence is not None:
            connection.exec_driver_sql(self._insert, values)
        return sequence

    def confirm_within(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Take the units and insert the order, or give them back if the order has a row."""
        sequence: int | None = connection.execute(_TAKE_WITHIN, values).scalar()
        if sequence is None:
            return None
        try:
            is_stored = connection.execute(_INSERT_WITHIN, values).rowcount == 1
        except DBAPIError:  # a trigger refused it: the caller may handle that, and commit
            if _is_open(connection):
                connection.execute(_GIVE_BACK, values)
            raise
        if is_stored:
            return sequence
        connection.execute(_GIVE_BACK, values)
        return None

    def void(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Insert the void unless the order has a row."""
        return connection.exec_driver_sql(self._void, values).rowcount == 1


_TAKE_WITHIN: Final = take_units(fenced=False).returning(segments.c.sequence)
_INSERT_WITHIN: Final = insert_on_conflict(orders).values(confirmed_values()).on_conflict_do_nothing()
_GIVE_BACK: Final = give_back()


def _is_open(connection: Connection) -> bool:
    """Return whether the transaction goes on after a failed statement: SQLite may have rolled it back."""
    return bool(getattr(connection.connection.driver_connection, "in_transaction", False))


def _text(statement: ClauseElement) -> str:
    return str(statement.compile(dialect=dialect(paramstyle="named")))

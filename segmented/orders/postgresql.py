"""PostgreSQL's words: a confirm is one statement in autocommit, so one round trip carries order, stock and commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import insert, select
from sqlalchemy.dialects.postgresql import insert as insert_on_conflict
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from segmented.orders.statements import ORDER_COLUMNS, STATE_CONFIRMED, given, take_units, void_values
from segmented.orders.tables import orders, segments

if TYPE_CHECKING:
    from sqlalchemy import Connection, Insert
    from sqlalchemy.sql.elements import ClauseElement

DRIVER: Final = "postgresql+psycopg"
CREATE_LOCK: Final = 7_341_652_098
"""Any number that no other program is likely to use for an advisory lock."""


class PostgresStatements:
    """Texts for psycopg."""

    begin = "BEGIN"

    def __init__(self) -> None:
        """Build the texts."""
        self._confirm_fenced = _text(_confirm(fenced=True))
        self._confirm = _text(_confirm(fenced=False))
        self._void = _text(insert_on_conflict(orders).values(void_values()).on_conflict_do_nothing())

    def begin_creating(self, connection: Connection) -> None:
        """Open a transaction and take turns, because CREATE TABLE IF NOT EXISTS fails when two run at once."""
        connection.exec_driver_sql(self.begin)
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")

    def confirm(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Take the units and insert the order. An order that has a row raises IntegrityError and changes nothing."""
        text = self._confirm if values["given_fence"] is None else self._confirm_fenced
        return connection.exec_driver_sql(text, values).rowcount == 1

    confirm_alone = confirm

    def void(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Insert the void unless the order has a row; waits for a confirm of the same order that is under way."""
        return connection.exec_driver_sql(self._void, values).rowcount == 1


def _confirm(*, fenced: bool) -> Insert:
    """Build the insert that finds a row to insert only if the update in its WITH clause moved one."""
    moved = take_units(fenced=fenced).returning(segments.c.segment).cte("moved")
    replaced = {orders.c.state: STATE_CONFIRMED, orders.c.segment: moved.c.segment}
    columns = [replaced.get(column, given(column)) for column in ORDER_COLUMNS]
    return insert(orders).from_select(ORDER_COLUMNS, select(*columns).select_from(moved), include_defaults=False)


def _text(statement: ClauseElement) -> str:
    return str(statement.compile(dialect=PGDialect_psycopg()))  # type: ignore[no-untyped-call]  # SQLAlchemy left its types out

"""The table of the row locks: one row a name, made once and kept for ever.

A row is a lock's name and the last fencing token that was committed under it. We never delete one, and nobody else
should while locks are in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, Column, MetaData, String, Table, text
from sqlalchemy.dialects.mysql import VARBINARY
from sqlalchemy.schema import CreateTable

from segmented.errors import InvalidInput
from segmented.locks.durations import checked_name
from segmented.locks.sql_edge import TABLE_NAME, translated
from segmented.locks.sql_rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

NAME_BYTES_MAX: Final = 1_024
"""In UTF-8: what fits into one entry of an index in every database."""
CREATE_LOCK: Final = 7_341_652_099
"""Any number that no other program is likely to use for an advisory lock."""
FILLFACTOR: Final = 50
"""Percent of a page filled at first: the rest takes the new versions of rows that change with every acquire."""
PAGE_SIZE: Final = 1_000

lock_metadata = MetaData()
"""For tools that make tables from metadata, such as Alembic."""

locks = Table(
    TABLE_NAME,
    lock_metadata,
    # Compared byte by byte: no collation takes two names for one, neither by case nor by a blank at the end.
    Column(
        "name",
        String(NAME_BYTES_MAX, collation="C").with_variant(VARBINARY(NAME_BYTES_MAX), "mysql", "mariadb"),
        primary_key=True,
    ),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
    postgresql_with={"fillfactor": FILLFACTOR},
)


def checked_row_name(name: str) -> str:
    """Refuse what is no lock's name, and a name longer than an index can hold."""
    length = len(checked_name(name, "a row lock").encode())
    if length > NAME_BYTES_MAX:
        message = f"the name of a row lock has {length} bytes in UTF-8; {NAME_BYTES_MAX} are the most"
        raise InvalidInput(message)
    return name


def create_lock_table(engine: Engine, *, names: Iterable[str] = ()) -> None:
    """Make the table `segmented_locks` unless it is there, and the rows of `names` unless they are there.

    May run any number of times, also at once. A row that is missing is made by the first acquire of its name; made
    here, it costs that acquire nothing. Raises InvalidInput for a database that has no row locks, and StoreError.
    """
    wanted = [checked_row_name(name) for name in names]
    with translated("the table of the row locks"), engine.connect() as connection:
        _create(connection, wanted)


async def async_create_lock_table(engine: AsyncEngine, *, names: Iterable[str] = ()) -> None:
    """Do what `create_lock_table` does, over an asyncio engine."""
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
    for first in range(0, len(names), PAGE_SIZE):
        with connection.begin():
            rows.insert_missing(connection, names[first : first + PAGE_SIZE])

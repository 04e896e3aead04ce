"""The version of the tables: a release neither reads nor changes tables that another release has laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, Integer, MetaData, String, Table, insert, inspect, select

from segmented.errors import InvalidInput
from segmented.orders.tables import metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection

TABLES_VERSION: Final = 1
"""The version that this release reads and writes. Tables without a row in `segmented_versions` have version 1."""
NAME: Final = "orders"

versions = Table(
    "segmented_versions",
    MetaData(),  # of its own, because tables of an earlier release lack it and lack nothing
    Column("name", String(64), primary_key=True),
    Column("version", Integer, nullable=False),
)


def check_version(connection: Connection, where: str) -> None:
    """Raise InvalidInput for tables of another version."""
    found = _version(connection)
    if found not in {None, TABLES_VERSION}:
        message = (
            f"{where} has tables of version {found}, and this release of segmented knows version {TABLES_VERSION} "
            "only: upgrade segmented, or name another database"
        )
        raise InvalidInput(message)


def create_missing(connection: Connection) -> None:
    """Create missing tables and store their version, in a transaction in which no other process creates tables."""
    if not missing_tables(connection):
        return  # nothing is created, so the account need not have the right to
    metadata.create_all(connection)
    versions.create(connection, checkfirst=True)
    if _version(connection) is None:
        connection.execute(insert(versions), {"name": NAME, "version": TABLES_VERSION})


def missing_tables(connection: Connection) -> tuple[str, ...]:
    """Return the names of the tables that are needed and missing."""
    there = inspect(connection)
    return tuple(name for name in sorted(metadata.tables) if not there.has_table(name))


def _version(connection: Connection) -> int | None:
    if not inspect(connection).has_table(versions.name):
        return None
    return connection.execute(select(versions.c.version).where(versions.c.name == NAME)).scalar_one_or_none()

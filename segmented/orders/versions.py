"""The version of the tables: a release neither reads nor changes tables that another release has laid out.

The version is the revision of a migration (segmented/orders/migrations), in a table of Alembic's form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from segmented.errors import InvalidInput
from segmented.orders.tables import metadata

if TYPE_CHECKING:
    from sqlalchemy import Connection

HEAD: Final = "r1"
"""The revision of the tables that this release reads and writes."""
VERSION_TABLE: Final = "segmented_alembic_version"
"""Of a name of its own, because the database may have another program's table of this form."""

versions = Table(
    VERSION_TABLE,
    MetaData(),  # of its own, because the migrations create it before all others
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)


def known_revision(connection: Connection, where: str) -> str | None:
    """Return the revision of the tables, None if there are none. Raises InvalidInput for that of another release."""
    found = _revision(connection)
    if found not in {None, HEAD}:
        message = (
            f"{where} has tables of revision {found}, and this release of segmented knows revision {HEAD} only: "
            "use the release that made them, or name another database"
        )
        raise InvalidInput(message)
    return found


def create_missing(connection: Connection) -> None:
    """Create missing tables and store their revision, while no other process creates tables.

    The revision comes first: where tables are not taken back with a transaction, the next call then creates the rest.
    """
    if not missing_tables(connection):
        return  # nothing is created, so the account need not have the right to
    if _revision(connection) is None:
        versions.create(connection, checkfirst=True)
        connection.execute(insert(versions), {"version_num": HEAD})
    metadata.create_all(connection)


def missing_tables(connection: Connection) -> tuple[str, ...]:
    """Return the names of the tables that are needed and missing."""
    there = inspect(connection)
    return tuple(name for name in sorted(metadata.tables) if not there.has_table(name))


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(versions.name):
        return None
    return connection.execute(select(versions.c.version_num)).scalar_one_or_none()

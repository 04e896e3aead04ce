"""The version of the tables: a release neither reads nor changes tables that another release has laid out.

The version is the revision of a migration (segmented/orders/migrations), in a table of Alembic's form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from segmented.errors import InvalidInput
from segmented.orders.tables import changes, metadata, orders, segments

if TYPE_CHECKING:
    from sqlalchemy import Connection

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006")
"""The revisions of the tables, oldest first. This release reads and writes the last one."""
HEAD: Final = REVISIONS[-1]
FIRST: Final = (segments, orders, changes)
"""The tables of the first revision, as they still are, but for columns that were added."""
ADDED: Final = frozenset({("segmented_orders", "reason")})
"""Columns of these tables that a later revision has added."""
VERSION_TABLE: Final = "segmented_alembic_version"
"""Of a name of its own, because the database may have another program's table of this form."""

versions = Table(
    VERSION_TABLE,
    MetaData(),  # of its own, because the migrations create it before all others
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)


def check_version(connection: Connection, where: str) -> None:
    """Raise InvalidInput for tables of another revision."""
    found = known_revision(connection, where)
    if found not in {None, HEAD}:
        message = (
            f"{where} has tables of revision {found}, and this release of segmented needs revision {HEAD}: "
            "bring them up to date with 'segmented orders migrate --database URL'"
        )
        raise InvalidInput(message)


def known_revision(connection: Connection, where: str) -> str | None:
    """Return the revision of the tables, None if there are none. Raises InvalidInput for that of a later release."""
    found = _revision(connection)
    if found is not None and found not in REVISIONS:
        message = (
            f"{where} has tables of revision {found}, and this release of segmented knows revisions up to {HEAD} only: "
            "upgrade segmented, or name another database"
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
        stamp(connection, HEAD)
    metadata.create_all(connection)


def stamp(connection: Connection, name: str) -> None:
    """Store the revision of tables that have none yet."""
    versions.create(connection, checkfirst=True)
    connection.execute(insert(versions), {"version_num": name})


def missing_tables(connection: Connection) -> tuple[str, ...]:
    """Return the names of the tables that are needed and missing."""
    there = inspect(connection)
    return tuple(name for name in sorted(metadata.tables) if not there.has_table(name))


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables. Tables without a revision have the first one."""
    there = inspect(connection)
    found = None
    if there.has_table(versions.name):
        found = connection.execute(select(versions.c.version_num)).scalar_one_or_none()
    is_old = found is None and any(there.has_table(table.name) for table in FIRST)
    return REVISIONS[0] if is_old else found

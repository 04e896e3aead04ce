"""The tables of finished keys: one row per finished key, and one per namespace whose rows were forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, Column, DateTime, MetaData, PrimaryKeyConstraint, String, Table, Text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.schema import CreateTable

from segmented.dedup.terms import NAMESPACE_LENGTH_MAX
from segmented.orders.tables import database_now

if TYPE_CHECKING:
    from sqlalchemy import Connection

KEY_LENGTH_MAX: Final = 255
DIGEST_LENGTH: Final = 32
CREATE_LOCK: Final = 7_341_652_100
"""An arbitrary number that other programs are unlikely to use for an advisory lock."""
TABLES: Final = "segmented_once by OnceTable().create(engine)"


def _identifier(length: int) -> String:
    """Return a text type that is compared byte by byte everywhere, so that no collation equates two keys."""
    binary = String(length, collation="utf8mb4_bin")
    return (
        String(length)
        .with_variant(String(length, collation="C"), "postgresql")
        .with_variant(binary, "mysql", "mariadb")
    )


once_metadata = MetaData()
"""For tools that create tables from metadata, such as Alembic."""

once = Table(
    "segmented_once",
    once_metadata,
    Column("namespace", _identifier(NAMESPACE_LENGTH_MAX), nullable=False),
    Column("record_key", _identifier(KEY_LENGTH_MAX), nullable=False),
    Column("message", _identifier(KEY_LENGTH_MAX), nullable=False),
    Column("payload_print", _identifier(DIGEST_LENGTH), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("body", Text().with_variant(LONGTEXT(), "mysql", "mariadb"), nullable=False),
    Column("finished_at", DateTime(timezone=True), nullable=False, server_default=database_now()),
    PrimaryKeyConstraint("namespace", "record_key", name="segmented_once_key"),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

forgotten = Table(
    "segmented_once_forgotten",
    once_metadata,
    Column("namespace", _identifier(NAMESPACE_LENGTH_MAX), primary_key=True),
    # The highest token of a forgotten row: the row of a run with no higher token may be among the deleted ones.
    Column("fence", BigInteger, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)


def create_tables(connection: Connection) -> None:
    """Create both tables unless they exist."""
    is_postgresql = connection.dialect.name == "postgresql"
    if is_postgresql:
        connection.execution_options(isolation_level="READ COMMITTED")
    with connection.begin():
        if is_postgresql:  # concurrent CREATE TABLE IF NOT EXISTS fails on PostgreSQL
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
        for table in once_metadata.sorted_tables:
            if not connection.dialect.has_table(connection, table.name):
                connection.execute(CreateTable(table, if_not_exists=True))

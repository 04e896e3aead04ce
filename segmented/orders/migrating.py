"""Bring the tables of an order database to the revision that this release needs."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from alembic import command
from alembic.config import Config

from segmented.orders.engine import STATEMENTS, shown, translated
from segmented.orders.tables import HEAD, create_missing, known_revision
from segmented.process import Guard

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

FOLDER: Final = Path(__file__).parent / "migrations"
ONE_AT_A_TIME: Final = Guard()
"""Alembic keeps the running migration in global variables."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """The revision of the tables before and after a migration."""

    before: str | None
    """None: there were no tables."""
    after: str

    @property
    def replay(self) -> bool:
        """Return whether the tables were up to date, so that nothing changed."""
        return self.before == self.after


def migrate(engine: Engine) -> Migrated:
    """Bring the tables of the database to the newest revision, or create them. Safe to repeat, also concurrently.

    `engine` is one made by `connect`. Raises InvalidInput for tables of a later release. On PostgreSQL and SQLite all
    of it happens, or nothing.
    """
    where = f"the order database {shown(engine.url)}"
    statements = STATEMENTS[engine.dialect.name]()
    with ONE_AT_A_TIME.lock, translated(where), engine.connect() as connection, statements.creating(connection):
        before = known_revision(connection, where)
        if not statements.undoes_tables and before in {None, HEAD}:
            create_missing(connection)  # also what an interrupted call has not created
        elif before != HEAD:
            run_revisions(connection)
        connection.commit()
    return Migrated(before, HEAD)


def run_revisions(connection: Connection) -> None:
    """Run the missing revisions in the transaction of this connection."""
    command.upgrade(_config(connection=connection), HEAD)


def revisions_as_sql(dialect: str, before: str | None, after: str) -> list[str]:
    """Return the statements that bring tables from one revision to another; without a `before`, tables are made."""
    written = StringIO()
    with ONE_AT_A_TIME.lock:
        command.upgrade(_config(written, dialect=dialect), f"{before or 'base'}:{after}", sql=True)
    return [one.strip() for one in written.getvalue().split(";\n") if one.strip()]


def _config(written: StringIO | None = None, **attributes: object) -> Config:
    config = Config(output_buffer=written)
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(attributes)
    return config

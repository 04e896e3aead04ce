"""The migration operations. The gate's tables are made by the Alembic revisions, so that both always agree."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation
from sqlalchemy import make_url
from sqlalchemy.schema import CreateTable

from segmented.dedup.sql import forgotten, once
from segmented.django.apps import gate_alias
from segmented.errors import InvalidInput
from segmented.orders.migrating import revisions_as_sql
from segmented.orders.tables import VERSION_TABLE

CURE = "bring them to this release with 'segmented orders migrate --database URL', and migrate again"


class GateTables(Operation):
    """Brings the gate's tables from one Alembic revision to another, in the database `SEGMENTED["DATABASE"]`.

    Does nothing in other databases, and for tables that are there already. It cannot be undone: the tables say what was
    sold.
    """

    reversible = False

    def __init__(self, after: str, before: str | None = None) -> None:
        """Create an operation from the revision `before` (None: no tables) to the revision `after`."""
        self.after, self.before = after, before

    def state_forwards(self, app_label: str, state: object) -> None:
        """Change nothing: no model has these tables."""

    def database_forwards(self, _: str, schema_editor: Any, __: object, ___: object) -> None:  # noqa: ANN401  # Django's own
        """Run the revisions that are missing, within Django's migration."""
        connection = schema_editor.connection
        if connection.alias != gate_alias():
            return
        found = None if schema_editor.collect_sql else _revision(connection)
        if found is not None and found >= self.after:
            return
        if found != self.before and not schema_editor.collect_sql:
            raise InvalidInput(f"the gate's tables in database {connection.alias!r} have revision {found}: {CURE}")
        for statement in revisions_as_sql(_dialect(connection), self.before, self.after):
            schema_editor.execute(statement, None)

    def describe(self) -> str:
        """Return the sentence that `manage.py migrate --plan` shows."""
        return f"Bring the tables of segmented to revision {self.after}"


class OnceTables(Operation):
    """Makes the tables of `OnceTable`, for `run.finish_in(connection)`, beside the gate's, unless they exist."""

    reversible = False

    def state_forwards(self, app_label: str, state: object) -> None:
        """Change nothing: no model has these tables."""

    def database_forwards(self, _: str, schema_editor: Any, __: object, ___: object) -> None:  # noqa: ANN401  # Django's own
        """Make the tables that are missing."""
        connection = schema_editor.connection
        if connection.alias != gate_alias():
            return
        there = () if schema_editor.collect_sql else connection.introspection.table_names()
        dialect = make_url(f"{_dialect(connection)}://").get_dialect()()
        for table in (once, forgotten):
            if table.name not in there:
                schema_editor.execute(str(CreateTable(table).compile(dialect=dialect)).strip(), None)

    def describe(self) -> str:
        """Return the sentence that `manage.py migrate --plan` shows."""
        return f"Make the tables {once.name} and {forgotten.name}"


def _dialect(connection: Any) -> str:  # noqa: ANN401  # Django's connection
    """Return SQLAlchemy's name: MariaDB's exact collation has another one than MySQL's."""
    return "mariadb" if getattr(connection, "mysql_is_mariadb", False) else str(connection.vendor)


def _revision(connection: Any) -> str | None:  # noqa: ANN401  # Django's connection
    if VERSION_TABLE not in connection.introspection.table_names():
        return None
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608  # a constant
        row = cursor.fetchone()
    return row and str(row[0])

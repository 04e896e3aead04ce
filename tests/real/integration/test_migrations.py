"""Migrations bring the tables of an order database to the newest revision, beside another program's migrations."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect, text

from segmented.errors import InvalidInput
from segmented.orders import Gate, Migrated, connect, migrate, migrating
from segmented.orders.tables import HEAD, VERSION_TABLE, metadata
from tests.support.command_line import ran

TABLES: Final = {
    "segmented_changes",
    "segmented_ledger",
    "segmented_orders",
    "segmented_outcomes",
    "segmented_returns",
    "segmented_sales",
    "segmented_segments",
}


@pytest.fixture
def engine(order_database: str) -> Iterator[Engine]:
    engine = connect(order_database)
    yield engine
    engine.dispose()


@pytest.fixture
def mariadb(mariadb_url: str) -> Iterator[Engine]:
    engine = create_engine(mariadb_url)
    with engine.begin() as connection:
        for name in inspect(connection).get_table_names():
            connection.exec_driver_sql(f"DROP TABLE {name}")
    yield engine
    engine.dispose()


def execute(engine: Engine, sql: str) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        found = connection.execute(text(sql))
        rows = [tuple(row) for row in found] if found.returns_rows else []
        connection.commit()
        return rows


def layout(engine: Engine) -> dict[str, Any]:
    """Describe all tables, as the database has them."""
    found = inspect(engine)
    return {
        name: (
            [
                (str(column["type"]), column["name"], column["nullable"], column.get("default"))
                for column in found.get_columns(name)
            ],
            found.get_pk_constraint(name),
            sorted((one["name"], one["sqltext"]) for one in found.get_check_constraints(name)),
            found.get_indexes(name),
        )
        for name in [*TABLES, VERSION_TABLE]
    }


def test_the_revisions_are_those_of_the_modules_and_the_last_one_is_the_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrating.FOLDER))
    config.set_main_option("path_separator", "os")
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert revisions[0] == HEAD
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_a_gate_works_without_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'orders.sqlite'}"
    program = f"""
import sys
from segmented.orders import Gate, connect
with Gate(connect({url!r})) as gate:
    gate.create()
print("alembic" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n"


def test_migrated_tables_are_those_that_a_gate_creates(engine: Engine) -> None:
    migrate(engine)
    migrated = layout(engine)
    for name in (*TABLES, VERSION_TABLE):
        execute(engine, f"DROP TABLE {name}")
    Gate(engine).create()
    assert layout(engine) == migrated


def test_tables_of_another_revision_are_refused_by_the_gate(engine: Engine) -> None:
    migrate(engine)
    execute(engine, "UPDATE segmented_alembic_version SET version_num = '0000'")
    for use in (lambda: Gate(connect(engine.url.render_as_string(hide_password=False))), lambda: migrate(engine)):
        with pytest.raises(InvalidInput, match="has tables of revision 0000, and this release of segmented"):
            use()


def test_mariadb_gets_the_tables_of_a_gate(mariadb: Engine) -> None:
    assert migrate(mariadb) == Migrated(None, HEAD)
    assert migrate(mariadb) == Migrated(HEAD, HEAD)
    with mariadb.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "include_name": _is_ours}
        )
        assert compare_metadata(context, metadata) == []


def _is_ours(name: str | None, kind: str, _: object) -> bool:
    return kind != "table" or str(name).startswith("segmented_")


def test_a_migration_that_fails_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    upgraded = migrating.run_revisions

    def fail(connection: sqlalchemy.Connection) -> None:
        upgraded(connection)
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(migrating, "run_revisions", fail)
        with pytest.raises(RuntimeError):
            migrate(engine)
    assert not inspect(engine).has_table("segmented_ledger")
    assert not inspect(engine).has_table(VERSION_TABLE)
    assert migrate(engine) == Migrated(None, HEAD)


def test_of_eight_migrations_at_once_one_changes_the_tables(order_database: str) -> None:
    done: list[Migrated] = []

    def run() -> None:
        own = connect(order_database, pool_size=1, timeout=120.0)
        done.append(migrate(own))
        own.dispose()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.before or "" for one in done) == ["", *[HEAD] * 7]
    assert {one.after for one in done} == {HEAD}


def test_the_command_says_what_it_changed(order_database: str) -> None:
    outputs = []
    for _ in range(2):
        said = ran("orders", "migrate", "--database", order_database, url=None)
        assert (said.returncode, said.stderr) == (0, "")
        outputs.append(said.stdout)
    assert outputs == [
        f"tables created at {HEAD}\n",
        f"tables at revision {HEAD} before: nothing is changed\n",
    ]
    said = ran("orders", "migrate", "--database", order_database, "--json", "-", url=None)
    assert json.loads(said.stdout) == {"before": HEAD, "after": HEAD, "is_changed": False}


ENVIRONMENT: Final = """
from alembic import context
from sqlalchemy import create_engine, MetaData, NullPool, Table, Column, Integer


metadata = MetaData()
Table("invoices", metadata, Column("id", Integer, primary_key=True))


def include_name(name, kind, parents):
    return kind != "table" or not name.startswith("segmented_")


with create_engine(context.config.get_main_option("url"), poolclass=NullPool).connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, include_name=include_name)
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
"""
REVISION: Final = """
from alembic import op
import sqlalchemy as sa

revision = "a1"
down_revision = None

def upgrade():
    op.create_table("invoices", sa.Column("id", sa.Integer, primary_key=True))
"""


def test_the_migrations_of_another_program_stand_beside_ours(
    order_database: str, engine: Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(ENVIRONMENT)
    (folder / "versions" / "a1.py").write_text(REVISION)
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.set_main_option("url", order_database.replace("%", "%%"))
    command.upgrade(config, "head")
    assert migrate(engine) == Migrated(None, HEAD)
    assert execute(engine, "SELECT version_num FROM alembic_version") == [("a1",)]
    assert execute(engine, "SELECT version_num FROM segmented_alembic_version") == [(HEAD,)]
    command.check(config)  # raises if it would drop our tables
    assert set(inspect(engine).get_table_names()) == TABLES | {"invoices", "alembic_version", VERSION_TABLE}

"""The order database's tables have a revision: a gate refuses those of another release in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from sqlalchemy import Engine, inspect, text

from segmented.errors import InvalidInput
from segmented.orders import Gate, connect
from tests.support.command_line import ran

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.servers import ValkeyServer

HEAD: Final = "0005"
LATER: Final = (
    r"^the order database \S+ has tables of revision 0006, and this release of segmented knows revisions up to 0005 "
    r"only: upgrade segmented, or name another database$"
)
EARLIER: Final = (
    r"^the order database \S+ has tables of revision 0001, and this release of segmented needs revision 0005: "
    r"bring them up to date with 'segmented orders migrate --database URL'$"
)


@pytest.fixture
def order_database(sqlite_url: str) -> str:
    """An empty one, without tables."""
    return sqlite_url


@pytest.fixture
def engine(order_database: str) -> Iterator[Engine]:
    """Change the database by hand."""
    engine = connect(order_database)
    yield engine
    engine.dispose()


def execute(engine: Engine, sql: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(sql))


def stored(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT version_num FROM segmented_alembic_version")).scalars())


def test_new_tables_say_their_revision_once(order_database: str, engine: Engine) -> None:
    for _ in range(2):
        with Gate(connect(order_database)) as gate:
            gate.create()
            assert gate.missing_tables() == ()
    assert stored(engine) == [HEAD]


def test_a_missing_table_is_created_again_beside_the_others(order_database: str, engine: Engine) -> None:
    with Gate(connect(order_database)) as gate:
        gate.create()
        execute(engine, "DROP TABLE segmented_changes")
        assert gate.missing_tables() == ("segmented_changes",)
        gate.create()
        assert gate.missing_tables() == ()
    assert stored(engine) == [HEAD]


@pytest.mark.parametrize(
    "change", ["DROP TABLE segmented_alembic_version", "UPDATE segmented_alembic_version SET version_num = '0001'"]
)
def test_earlier_tables_are_refused_with_the_command_that_migrates_them(
    order_database: str, engine: Engine, change: str
) -> None:
    with Gate(connect(order_database)) as gate:
        gate.create()
        execute(engine, "DROP TABLE segmented_ledger")
        execute(engine, change)
        with pytest.raises(InvalidInput, match=EARLIER):
            Gate(connect(order_database))
        with pytest.raises(InvalidInput, match=EARLIER):
            gate.create()
    assert not inspect(engine).has_table("segmented_ledger")


def test_tables_of_a_later_release_are_refused_before_anything_is_read_or_created(
    order_database: str, engine: Engine, valkey: ValkeyServer
) -> None:
    with Gate(connect(order_database)) as gate:
        gate.create()
        execute(engine, "UPDATE segmented_alembic_version SET version_num = '0006'")
        execute(engine, "DROP TABLE segmented_changes")
        with pytest.raises(InvalidInput, match=LATER):
            Gate(connect(order_database))
        with pytest.raises(InvalidInput, match=LATER):
            gate.create()
    opening = ("pool", "open", "mug", "--stock", "1", "--segments", "1", "--gated", "--create-tables")
    for command in (opening, ("orders", "migrate")):
        said = ran(*command, "--database", order_database, url=valkey.url)
        assert (said.returncode, "tables of revision 0006" in said.stderr, said.stdout) == (2, True, "")
    assert not inspect(engine).has_table("segmented_changes")
    assert stored(engine) == ["0006"]

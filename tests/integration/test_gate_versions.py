"""The order database's tables have a version: a gate refuses those of another release in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, inspect, text

from segmented.errors import InvalidInput
from segmented.orders import Gate, connect
from segmented.orders.tables import metadata
from tests.support.command_line import ran

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.servers import ValkeyServer

SENTENCE = (
    r"^the order database \S+ has tables of version 2, and this release of segmented knows version 1 only: "
    r"upgrade segmented, or name another database$"
)


@pytest.fixture
def engine(order_database: str) -> Iterator[Engine]:
    """Change the database by hand."""
    engine = connect(order_database)
    yield engine
    engine.dispose()


def execute(engine: Engine, sql: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(sql))


def stored(engine: Engine) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text("SELECT name, version FROM segmented_versions"))]


def test_new_tables_say_their_version_once(order_database: str, engine: Engine) -> None:
    for _ in range(2):
        with Gate(connect(order_database)) as gate:
            gate.create()
            assert gate.missing_tables() == ()
    assert stored(engine) == [("orders", 1)]


def test_tables_from_before_the_version_have_version_1_and_nothing_is_created(
    order_database: str, engine: Engine
) -> None:
    with engine.connect() as connection:
        metadata.create_all(connection)
    with Gate(connect(order_database)) as gate:
        assert gate.missing_tables() == ()
        gate.create()
        gate.open("mug", [1])
        gate.confirm(order_id="a", sku="mug", segment=0, quantity=1, epoch=1)
    assert not inspect(engine).has_table("segmented_versions")


def test_tables_of_a_release_before_that_lacked_some_get_them_and_the_version(
    order_database: str, engine: Engine
) -> None:
    with engine.connect() as connection:
        metadata.create_all(connection, tables=[metadata.tables["segmented_orders"]])
    with Gate(connect(order_database)) as gate:
        gate.create()
        assert gate.missing_tables() == ()
    assert stored(engine) == [("orders", 1)]


def test_tables_of_another_version_are_refused_before_anything_is_read_or_created(
    order_database: str, engine: Engine, valkey: ValkeyServer
) -> None:
    with Gate(connect(order_database)) as gate:
        gate.create()
        execute(engine, "UPDATE segmented_versions SET version = 2")
        execute(engine, "DROP TABLE segmented_changes")
        with pytest.raises(InvalidInput, match=SENTENCE):
            Gate(connect(order_database))
        with pytest.raises(InvalidInput, match=SENTENCE):
            gate.create()
    said = ran(
        "pool",
        "open",
        "mug",
        "--stock",
        "1",
        "--segments",
        "1",
        "--gated",
        "--create-tables",
        "--database",
        order_database,
        url=valkey.url,
    )
    assert (said.returncode, "tables of version 2" in said.stderr, said.stdout) == (2, True, "")
    assert not inspect(engine).has_table("segmented_changes")
    assert stored(engine) == [("orders", 2)]

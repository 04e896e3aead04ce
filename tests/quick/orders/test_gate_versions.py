"""The order database's tables have a revision: a gate refuses those of another release in one sentence."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text

from segmented.orders import Gate, connect


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


def stored(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT version_num FROM segmented_alembic_version")).scalars())


def test_new_tables_say_their_revision_once(order_database: str, engine: Engine) -> None:
    for _ in range(2):
        with Gate(connect(order_database)) as gate:
            gate.create()
            assert gate.missing_tables() == ()
    assert len(stored(engine)) == 1

"""Order databases of the quick ring: SQLite, in a file of the test's own, with the tables made once a run."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from segmented import RedisStore
from segmented.orders import Gate, connect
from segmented.servers import ValkeyServer

DATABASES: Final = {"sqlite": "order_database", "postgresql": "postgres_database", "mariadb": "mariadb_database"}
PATIENCE: Final = 120
"""Seconds."""


@pytest.fixture(scope="session")
def made_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An order database with its tables and nothing in them."""
    made = tmp_path_factory.mktemp("orders") / "made.sqlite"
    with Gate(connect(f"sqlite:///{made}")) as gate:
        gate.create()
    return made


@pytest.fixture
def order_database(made_tables: Path, tmp_path: Path) -> str:
    """Return the URL of an order database that has its tables."""
    return f"sqlite:///{shutil.copy(made_tables, tmp_path / 'orders.sqlite')}"


@pytest.fixture
def store(valkey: ValkeyServer) -> Iterator[RedisStore]:
    """A store on the session's Valkey that waits for it, also while the machine stands still."""
    with RedisStore(f"{valkey.url}&socket_timeout={PATIENCE}") as made:
        yield made


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def every_database(request: pytest.FixtureRequest) -> str:
    """The same, and on a real PostgreSQL in the real ring: for what they do by statements of their own.

    With `on_mariadb_too` on a real MariaDB, as well.
    """
    url: str = request.getfixturevalue(DATABASES[request.param])
    return url

